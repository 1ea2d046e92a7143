package guest

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// openPort opens a serial port and makes it carry every byte unchanged.
func openPort(path string) (*os.File, error) {
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	raw := syscall.Termios{Cflag: syscall.CS8 | syscall.CREAD | syscall.CLOCAL | syscall.B115200}
	raw.Cc[syscall.VMIN] = 1
	if err := ioctl(fd, syscall.TCSETS, uintptr(unsafe.Pointer(&raw))); err != nil {
		return nil, fmt.Errorf("setting %s to raw bytes: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// drain waits until the last byte has left the port.
func drain(port *os.File) {
	const tcsbrk = 0x5409 // TCSBRK, which with an argument other than zero is tcdrain(3)
	_ = ioctl(int(port.Fd()), tcsbrk, 1)
}

func ioctl(fd int, request, arg uintptr) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, arg); errno != 0 {
		return errno
	}
	return nil
}
