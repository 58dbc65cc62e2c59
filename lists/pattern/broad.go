package pattern

// canaries are addresses that have nothing in common but an "@" and a dot: what
// matches all of them says nothing about a sender.
var canaries = [...]string{
	"k7@q3.example",
	"vw_y+x@z-u.invalid",
	"anna.maria@mail.firm.test",
	"0815@4711.localhost.test",
	"o'brien@ggg.hhh.example",
	"info@xn--bcher-kva.invalid",
	"x@y.z.w.u.v.test",
	"bounce-1234-jp=dd.test@lists.example",
	"müller@tt.example",
	"sales@aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.invalid",
	"no-reply@ff-9.test",
	"c.d.e.f@pp.invalid",
}

// maxCanaries is how many of them a pattern may match that has no text a sender
// must hold. "[0-9]{4}" matches three, "^.{1,4}@" four.
const maxCanaries = 2

// TooBroad reports whether the pattern says so little about a sender that it must
// be a mistake: it matches everybody, or it has no literal and matches several of
// a dozen addresses that are nobody's.
func (p *Pattern) TooBroad() bool {
	matched := 0
	for _, c := range canaries {
		if p.Match(c) {
			matched++
		}
	}
	return matched == len(canaries) || p.Free() && matched > maxCanaries
}
