package hadoop

import (
	"encoding/xml"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// TestShuffleFiles shows the settings for clients of shuffle servers, and that other pools have none.
func TestShuffleFiles(t *testing.T) {
	if files := ShuffleFiles(nil); len(files) != 0 {
		t.Errorf("without shuffle servers: %v", files)
	}
	files := ShuffleFiles(&v1alpha1.ShuffleSpec{
		Celeborn: &v1alpha1.CelebornSpec{Masters: []string{"master1:9097", "master2:9097"}},
	})
	names := slices.Sorted(maps.Keys(files))
	if !slices.Equal(names, []string{"mapred-shuffle.xml", "spark-shuffle.conf"}) {
		t.Fatalf("files %q", names)
	}
	const spark = `spark.celeborn.client.push.replicate.enabled true
spark.celeborn.master.endpoints master1:9097,master2:9097
spark.serializer org.apache.spark.serializer.KryoSerializer
spark.shuffle.manager org.apache.spark.shuffle.celeborn.SparkShuffleManager
spark.shuffle.service.enabled false
spark.sql.adaptive.localShuffleReader.enabled false
`
	if files["spark-shuffle.conf"] != spark {
		t.Errorf("Spark:\n%s", files["spark-shuffle.conf"])
	}
	var site struct {
		Property []struct {
			Name  string `xml:"name"`
			Value string `xml:"value"`
		} `xml:"property"`
	}
	if err := xml.Unmarshal([]byte(files["mapred-shuffle.xml"]), &site); err != nil {
		t.Fatal(err)
	}
	var mapReduce []string
	for _, p := range site.Property {
		mapReduce = append(mapReduce, p.Name+" "+p.Value)
	}
	want := []string{
		"mapreduce.celeborn.client.push.replicate.enabled true",
		"mapreduce.celeborn.master.endpoints master1:9097,master2:9097",
		"mapreduce.job.map.output.collector.class org.apache.hadoop.mapred.CelebornMapOutputCollector",
		"mapreduce.job.reduce.shuffle.consumer.plugin.class org.apache.hadoop.mapreduce.task.reduce.CelebornShuffleConsumer",
		"yarn.app.mapreduce.am.command-opts -Xmx1024m org.apache.celeborn.mapreduce.v2.app.MRAppMasterWithCeleborn",
	}
	if !slices.Equal(mapReduce, want) {
		t.Errorf("MapReduce:\n%s", strings.Join(mapReduce, "\n"))
	}
}
