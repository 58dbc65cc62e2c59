package remote

import (
	"net/http"
	"strconv"
	"time"
)

// mostRetryAfter bounds what a server may ask for: a wrong Retry-After must not
// end the fetching of a list for good.
const mostRetryAfter = 24 * time.Hour

// pause is how long a source rests after a success: Every ±10 %. So daemons with the
// same recipe do not ask a list's server in the same second.
// random is between 0 and 1, here as below.
func (s *source) pause(random float64) time.Duration {
	return max(leastEvery, time.Duration(float64(s.Every)*(0.9+0.2*random)))
}

// retry is how long it rests after this many failures in a row: 1 to 2 minutes, 2
// to 4, and so on until half of Every to Every. It rests longer if the server asked for
// it, but not for more than a day.
func (s *source) retry(failures int, retryAfter time.Duration, random float64) time.Duration {
	most := s.Every
	if shift := min(failures, 16); leastEvery<<shift < most { // 16: 45 days, over every Every
		most = leastEvery << shift
	}
	wait := max(leastEvery, time.Duration(float64(most)*(0.5+0.5*random)))
	return max(wait, min(retryAfter, mostRetryAfter))
}

// parseRetryAfter reads the header field of RFC 9110, section 10.2.3: seconds or
// a date. It is 0 if the field has neither, or the date has passed.
func parseRetryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(now))
}
