package hadoop

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/yarncheck"
)

// Files with the settings for clients of shuffle servers. In a NodeManager's directory, nothing reads files of these
// names.
const (
	sparkFile     = "spark-shuffle.conf"
	mapReduceFile = "mapred-shuffle.xml"
)

// ShuffleFiles returns the files with the settings for clients of a remote shuffle service, by name.
func ShuffleFiles(s *v1alpha1.ShuffleSpec) map[string]string {
	var spark, mapReduce map[string]string
	switch {
	case s == nil:
		return map[string]string{}
	case s.Uniffle != nil:
		spark, mapReduce = yarncheck.UniffleClients(s.Uniffle.Coordinators)
	case s.Celeborn != nil:
		spark, mapReduce = yarncheck.CelebornClients(s.Celeborn.Masters)
	}
	var conf, site strings.Builder
	for _, name := range slices.Sorted(maps.Keys(spark)) {
		fmt.Fprintf(&conf, "%s %s\n", name, spark[name])
	}
	site.WriteString("<?xml version=\"1.0\"?>\n<configuration>\n")
	writeProperties(&site, mapReduce)
	site.WriteString("</configuration>\n")
	return map[string]string{sparkFile: conf.String(), mapReduceFile: site.String()}
}
