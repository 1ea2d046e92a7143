package main

import "golang.org/x/sys/unix"

// The requests that read and set how a terminal behaves.
const getTermios, setTermios = unix.TIOCGETA, unix.TIOCSETA
