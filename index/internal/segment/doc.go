// Package segment is what the cache beside an index has of each source: a segment, which
// holds the entries of one source as they were read, so that the source need not be
// parsed again, and a memo, which tells whether the source's file is as it was. It
// compares two segments of one source for an update.
//
// It knows entries and sources as package format has them, and neither builds nor
// look-ups. Whatever is wrong with a cache costs time and no more.
package segment
