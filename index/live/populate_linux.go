package live

import "golang.org/x/sys/unix"

// populate has the system read a mapping at once. Elsewhere each page is read when it is needed.
const populate = unix.MAP_POPULATE
