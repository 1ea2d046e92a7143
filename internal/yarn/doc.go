// Package yarn is a client of Hadoop YARN: of the ResourceManager's and the NodeManager's web services ([RM],
// [NM]), and of the ResourceManager's administration protocol ([Admin]) for what the web services lack. It carries
// requests and answers, and decides nothing.
//
// A ResourceManager can answer 200 and change nothing: its web service logs some errors instead of returning them. So
// methods of [RM] that change something read the result back and return a [NoEffectError] if nothing changed. Where
// they do not, they say so.
//
// [Auth] says who the caller is, by a name or by a Kerberos principal. Web services can have TLS. RPC has none in
// Hadoop; with Kerberos, the client uses the strongest protection that the server offers.
//
// Memory is in MiB and CPU in vcores, as in YARN; [MiB] and [VCores] convert from Kubernetes' units.
package yarn
