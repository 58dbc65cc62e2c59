// Package index is one generation of the lists: filter, exact store and list
// table, built together, kept in one immutable file, and trusted together.
//
// The file is specified in docs/index-format.md. The filter answers "surely not"
// for nearly every sender; only the exact store, which holds every key in full,
// can make a Match.
package index
