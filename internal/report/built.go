package report

import "runtime/debug"

// BuiltFrom returns the commit that this executable was built from: what the build's flags say, else what the toolchain
// noted.
func BuiltFrom(flag string) string {
	if flag != "" {
		return flag
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value
			}
		}
	}
	return "unknown"
}
