//go:build !linux

package live

const populate = 0
