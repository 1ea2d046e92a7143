package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// Threshold is from which percentage of a roll-out on a node is in: 1 to 100. It depends on the node's UID and the policy's
// name alone, so a node that is in at one percentage is in at each that is higher, and each policy begins with other nodes.
//
// It is 1 + ⌊100 × h / 2⁶⁴⌋, where h is the first eight bytes of the SHA-256 of "UID/name", as a big-endian number. FNV-1a
// would not do: of 10,000 nodes it gave policies web-a and web-b the same quarter.
func Threshold(uid, policy string) int64 {
	sum := sha256.Sum256([]byte(uid + "/" + policy))
	place, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:8]), 100)
	return int64(place) + 1
}
