package export

import (
	"math"
	"strconv"
	"testing"
)

// Up to a million keys are counted exactly, and more to within 1 %, whatever comes twice.
func TestDistinct(t *testing.T) {
	for _, n := range []int{0, 1, 1000, exactKeys, 3_000_000} {
		var d distinct
		for i := range n {
			key := strconv.Itoa(i)
			d.add(key)
			if i%3 == 0 {
				d.add(key)
			}
		}
		have := d.count()
		if n <= exactKeys && have != n || math.Abs(float64(have-n)) > float64(n)/100 {
			t.Errorf("%d of %d", have, n)
		}
		if cap(d.hashes) > 3*exactKeys {
			t.Errorf("%d keys take %d octets", n, cap(d.hashes)*8)
		}
	}
}
