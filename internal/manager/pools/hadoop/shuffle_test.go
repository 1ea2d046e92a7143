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
	mapReduce := propertiesOf(t, files["mapred-shuffle.xml"])
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
	files = ShuffleFiles(&v1alpha1.ShuffleSpec{
		Uniffle: &v1alpha1.UniffleSpec{Coordinators: []string{"coordinator1:19999", "coordinator2:19999"}},
	})
	want = []string{
		"mapreduce.job.map.output.collector.class org.apache.hadoop.mapred.RssMapOutputCollector",
		"mapreduce.job.reduce.shuffle.consumer.plugin.class org.apache.hadoop.mapreduce.task.reduce.RssShuffle",
		"mapreduce.rss.coordinator.quorum coordinator1:19999,coordinator2:19999",
		"mapreduce.rss.data.replica 3",
		"mapreduce.rss.data.replica.read 2",
		"mapreduce.rss.data.replica.write 2",
		"mapreduce.rss.storage.type MEMORY_LOCALFILE",
		"yarn.app.mapreduce.am.command-opts -Xmx1024m org.apache.hadoop.mapreduce.v2.app.RssMRAppMaster",
	}
	if mapReduce := propertiesOf(t, files["mapred-shuffle.xml"]); !slices.Equal(mapReduce, want) {
		t.Errorf("MapReduce over Uniffle:\n%s", strings.Join(mapReduce, "\n"))
	}
}

// propertiesOf returns the properties of a file of Hadoop, each with its value.
func propertiesOf(t *testing.T, file string) (all []string) {
	t.Helper()
	var site struct {
		Property []struct {
			Name  string `xml:"name"`
			Value string `xml:"value"`
		} `xml:"property"`
	}
	if err := xml.Unmarshal([]byte(file), &site); err != nil {
		t.Fatal(err)
	}
	for _, p := range site.Property {
		all = append(all, p.Name+" "+p.Value)
	}
	return all
}
