package lists

import "strings"

// shipped are domains in which very many people who do not know each other have
// their mailboxes, by the tens of thousands at least: an entry for one of them as a
// whole is a mistake or an attack. National names of one provider stand beside
// it where they have such numbers. Throw-away services are not meant, however
// large: some of them belong on lists.
//
// It is reviewed by hand and grows slowly. What is missing for an organisation,
// such as its university's or its provider's domain, goes into `protected` of its
// configuration; what is wrong in it for a list, into that list's `force`.
const shipped = `
	gmail.com googlemail.com
	outlook.com hotmail.com live.com msn.com
	hotmail.co.uk hotmail.de hotmail.es hotmail.fr hotmail.it
	live.co.uk live.fr live.it live.nl outlook.de outlook.es outlook.fr
	yahoo.com ymail.com rocketmail.com
	yahoo.ca yahoo.co.in yahoo.co.jp yahoo.co.uk yahoo.com.br yahoo.de yahoo.es yahoo.fr yahoo.it
	aol.com
	icloud.com me.com mac.com
	proton.me protonmail.com pm.me
	fastmail.com zoho.com tuta.com tutanota.com mail.com

	gmx.com gmx.net gmx.de gmx.at gmx.ch web.de t-online.de freenet.de posteo.de mailbox.org
	bluewin.ch
	orange.fr wanadoo.fr free.fr sfr.fr laposte.net
	libero.it virgilio.it tiscali.it alice.it
	seznam.cz wp.pl o2.pl onet.pl interia.pl
	ziggo.nl telenet.be
	btinternet.com sky.com virginmedia.com

	mail.ru bk.ru inbox.ru list.ru yandex.ru yandex.com ya.ru rambler.ru ukr.net
	qq.com foxmail.com 163.com 126.com yeah.net sina.com
	naver.com daum.net hanmail.net
	docomo.ne.jp ezweb.ne.jp softbank.ne.jp
	rediffmail.com

	comcast.net verizon.net att.net sbcglobal.net bellsouth.net cox.net charter.net earthlink.net
	shaw.ca bigpond.com
	uol.com.br terra.com.br bol.com.br
`

// ShippedProtected returns the domains that are protected wherever nothing is
// said: big mailbox providers, in canonical form.
func ShippedProtected() []string { return strings.Fields(shipped) }
