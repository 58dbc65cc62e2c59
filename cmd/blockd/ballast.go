package main

// ballastOctets is how much is allocated and never touched, so that it takes no memory.
// The collector starts when the heap has doubled, but not below 4 MB, of which a daemon
// with a small heap has filled 3 with every 150 messages; its cycles were some 8 % of a
// mail's CPU. With this there are 9 MB between two of them, which is 6 MB more of memory
// (docs/decisions/0021-ballast.md).
const ballastOctets = 8 << 20

// ballast returns what must be kept alive for as long as the collector is to wait.
func ballast() []byte { return make([]byte, ballastOctets) }
