package parse

// Params is a set of MAIL or RCPT parameters.
type Params uint16

// The parameters that Line understands, each on its command only; any other
// one is refused with 555. AUTH is among the others: it is never announced.
const (
	ParamSize       Params = 1 << iota // SIZE=n, RFC 1870; MAIL
	ParamBody                          // BODY=7BIT or 8BITMIME, RFC 6152; MAIL
	ParamSMTPUTF8                      // RFC 6531; MAIL
	ParamRet                           // RET=FULL or HDRS, RFC 3461; MAIL
	ParamEnvID                         // ENVID=xtext, RFC 3461; MAIL
	ParamNotify                        // NOTIFY=..., RFC 3461; RCPT
	ParamOrcpt                         // ORCPT=type;xtext, RFC 3461; RCPT
	ParamBy                            // BY=seconds;mode, RFC 2852; MAIL
	ParamMTPriority                    // MT-PRIORITY=-9..9, RFC 6710; MAIL
	ParamRRVS                          // RRVS=time, RFC 7293; RCPT
	ParamHoldFor                       // HOLDFOR=seconds, RFC 4865; MAIL
	ParamHoldUntil                     // HOLDUNTIL=time, RFC 4865; MAIL
)

// Has reports whether all of q are in p.
func (p Params) Has(q Params) bool { return p&q == q }

// Unannounced returns the refusal of the first parameter in p whose extension
// the server has not announced, or nil. announced gets EHLO keywords in
// capitals: "SIZE", "8BITMIME", "SMTPUTF8", "DSN", "DELIVERBY", "MT-PRIORITY",
// "RRVS", "FUTURERELEASE".
func (p Params) Unannounced(announced func(keyword string) bool) *Error { panic("unwritten") }
