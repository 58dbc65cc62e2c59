// Package build makes the file of an index from sources: their entries are read by
// several workers, from the cached segment of a source or from its text (read.go,
// fromcache.go), kept as records in parts by their hash, in memory or in a temporary
// file (intake.go, scatter.go), merged part by part into one record a key (merge.go),
// cut into pages, written, and read back (unit.go, write.go); their hashes fill the
// filter (hashes.go, filter.go).
//
// It owns how much memory and how many goroutines that takes. It does not know what
// serves: a draft that was written is opened by its caller, and checked here.
package build
