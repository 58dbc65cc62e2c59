//go:build !nosql

package config

// noSQL says that this build leaves out the sources that need a library of their own.
const noSQL = false
