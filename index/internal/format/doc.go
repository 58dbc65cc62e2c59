// Package format is the file of an index as docs/index-format.md specifies it: header,
// sections, the directory of pages, pages and their records, the tables of lists,
// reasons, networks, patterns, worth and refused lines, all sums, and the keys and
// hashes by which records are found. It encodes what a build gives it, decodes what a
// file holds, and believes no byte of that before it is checked.
//
// It knows neither where entries come from nor what a look-up asks. Nothing of the
// mapping of a file is kept here.
package format
