// Package index is one generation of the lists: filter, exact store and list
// table, built together, kept in one immutable file, and trusted together. It opens
// such a file, looks up senders and clients in it, walks over its entries, and amends it
// in memory by what has changed in a list since.
//
// The file is specified in docs/index-format.md and is that of package
// internal/format. The filter answers "surely not" for nearly every sender; only the
// exact store, which holds every key in full, can make a Match. Package internal/build
// makes the file, and internal/segment keeps what was read of each source for the next
// build. They import downwards only: index, build, segment, format.
package index
