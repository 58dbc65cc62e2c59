package lists

// ParserVersion numbers what this package makes of a list's text. It is raised with
// every change by which any octets, read with the same Settings and a Guard of the
// same ID, give other entries, other self-tests or other counts: a new form, a line
// that is refused now or no longer, another canonical key, reason or scope, a format
// that is guessed otherwise, another About. Who keeps what was read beside the text's hash keeps
// this number too, and reads again where it differs. Words for people (Message, Why)
// and speed do not count.
const ParserVersion = 15
