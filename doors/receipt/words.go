package receipt

import (
	"html"
	"strconv"
	"strings"

	"golang.org/x/text/language"
)

// words are the texts of the page in one language. {list} and {date} are filled in.
type words struct {
	Title, Refused, Client, Way         string // what has happened: by a list; by a rule; and what to do otherwise
	Ask, AskWhy, Note, Button           string
	Open, Granted, Forever, Declined    string
	Contact, TooMany, Unknown, Trouble  string
	UnknownTitle, TroubleTitle, Receipt string
	Complain, Home                      string // of the list
	Personal                            string // what has happened: by the recipient's own list
}

// languages are those of the page; the first is for all who ask for none of them. Catalogues stand in the same order.
var languages = []language.Tag{language.English, language.German, language.French, language.Spanish, language.Chinese}

var catalogues = []words{{
	Title:   "Your message was refused",
	Refused: "On {date} this mail server refused a message of yours. The list “{list}” names your address, its domain, or the server that your message came from.",
	Client:  "On {date} this mail server refused a message of yours because of the name that the sending server gave itself.",
	Way:     "The people you wrote to have not seen your message. If it cannot wait, reach them in another way.",
	Ask:     "Ask for release",
	AskWhy:  "If this is a mistake, ask. A person who looks after this mail server reads your request. Your next messages may then pass.",
	Note:    "What should we know? (optional)",
	Button:  "Ask for release",
	Open:    "You asked on {date}. Your request waits for a person. Look at this page again tomorrow.",
	Granted: "Your request was granted. Send your message again; your mail passes until {date}.",
	Forever: "Your request was granted. Send your message again.", Declined: "Your request was declined.",
	Contact: "You can also write or call:", TooMany: "There are too many requests today. Please ask again tomorrow.",
	UnknownTitle: "No such receipt", Unknown: "There is no receipt at this address, or not any more. Copy the whole address from the message that you got back.",
	TroubleTitle: "Not now", Trouble: "This page cannot be shown just now. Please try again in a minute.", Receipt: "Reference",
	Complain: "To complain about this list, go to:", Home: "About this list:",
	Personal: "On {date} this mail server refused a message of yours, because its recipient does not accept mail from you.",
}, {
	Title:   "Ihre Nachricht wurde abgewiesen",
	Refused: "Am {date} hat dieser Mailserver eine Nachricht von Ihnen abgewiesen. Die Liste „{list}“ nennt Ihre Adresse, deren Domain oder den Server, von dem Ihre Nachricht kam.",
	Client:  "Am {date} hat dieser Mailserver eine Nachricht von Ihnen abgewiesen, weil sich der sendende Server mit einem falschen Namen gemeldet hat.",
	Way:     "Die Menschen, denen Sie geschrieben haben, haben Ihre Nachricht nicht gesehen. Wenn es eilt, erreichen Sie sie auf anderem Weg.",
	Ask:     "Um Freigabe bitten",
	AskWhy:  "Wenn das ein Irrtum ist, bitten Sie um Freigabe. Ein Mensch, der diesen Mailserver betreut, liest Ihre Bitte. Ihre nächsten Nachrichten können dann ankommen.",
	Note:    "Was sollten wir wissen? (freiwillig)",
	Button:  "Um Freigabe bitten",
	Open:    "Sie haben am {date} gefragt. Ihre Bitte wartet auf einen Menschen. Sehen Sie morgen wieder auf diese Seite.",
	Granted: "Ihrer Bitte wurde entsprochen. Senden Sie Ihre Nachricht noch einmal; bis {date} kommt Ihre Mail an.",
	Forever: "Ihrer Bitte wurde entsprochen. Senden Sie Ihre Nachricht noch einmal.", Declined: "Ihre Bitte wurde abgelehnt.",
	Contact: "Sie können auch schreiben oder anrufen:", TooMany: "Heute gibt es zu viele Anfragen. Bitte fragen Sie morgen noch einmal.",
	UnknownTitle: "Kein solcher Beleg", Unknown: "Unter dieser Adresse gibt es keinen Beleg, oder nicht mehr. Kopieren Sie die ganze Adresse aus der Nachricht, die zurückkam.",
	TroubleTitle: "Gerade nicht", Trouble: "Diese Seite kann gerade nicht gezeigt werden. Bitte versuchen Sie es in einer Minute noch einmal.", Receipt: "Zeichen",
	Complain: "Beschwerden über diese Liste nimmt entgegen:", Home: "Über diese Liste:",
	Personal: "Am {date} hat dieser Mailserver eine Nachricht von Ihnen abgewiesen, weil ihr Empfänger keine Mail von Ihnen annimmt.",
}, {
	Title:   "Votre message a été refusé",
	Refused: "Le {date}, ce serveur de messagerie a refusé un message de votre part. La liste « {list} » contient votre adresse, son domaine ou le serveur d’où venait votre message.",
	Client:  "Le {date}, ce serveur de messagerie a refusé un message de votre part à cause du nom que le serveur d’envoi s’est donné.",
	Way:     "Les personnes à qui vous avez écrit n’ont pas vu votre message. S’il est urgent, joignez-les autrement.",
	Ask:     "Demander l’autorisation",
	AskWhy:  "Si c’est une erreur, demandez l’autorisation. Une personne qui s’occupe de ce serveur lira votre demande. Vos prochains messages pourront alors passer.",
	Note:    "Que devons-nous savoir ? (facultatif)",
	Button:  "Demander l’autorisation",
	Open:    "Vous avez fait une demande le {date}. Elle attend qu’une personne la lise. Revenez sur cette page demain.",
	Granted: "Votre demande a été acceptée. Envoyez votre message à nouveau ; vos messages passent jusqu’au {date}.",
	Forever: "Votre demande a été acceptée. Envoyez votre message à nouveau.", Declined: "Votre demande a été refusée.",
	Contact: "Vous pouvez aussi écrire ou appeler :", TooMany: "Il y a trop de demandes aujourd’hui. Veuillez réessayer demain.",
	UnknownTitle: "Reçu inconnu", Unknown: "Il n’y a pas ou plus de reçu à cette adresse. Copiez l’adresse entière du message qui vous est revenu.",
	TroubleTitle: "Pas maintenant", Trouble: "Cette page ne peut pas être affichée en ce moment. Veuillez réessayer dans une minute.", Receipt: "Référence",
	Complain: "Pour une réclamation sur cette liste :", Home: "À propos de cette liste :",
	Personal: "Le {date}, ce serveur de messagerie a refusé un message de votre part, car son destinataire n’accepte pas vos messages.",
}, {
	Title:   "Su mensaje fue rechazado",
	Refused: "El {date}, este servidor de correo rechazó un mensaje suyo. La lista «{list}» contiene su dirección, el dominio de esta o el servidor del que vino su mensaje.",
	Client:  "El {date}, este servidor de correo rechazó un mensaje suyo por el nombre con el que se presentó el servidor que lo enviaba.",
	Way:     "Las personas a las que escribió no han visto su mensaje. Si es urgente, contacte con ellas de otra manera.",
	Ask:     "Pedir autorización",
	AskWhy:  "Si se trata de un error, pida autorización. Una persona que cuida este servidor leerá su petición. Después sus próximos mensajes podrán pasar.",
	Note:    "¿Qué debemos saber? (opcional)",
	Button:  "Pedir autorización",
	Open:    "Usted lo pidió el {date}. Su petición espera a que una persona la lea. Vuelva a esta página mañana.",
	Granted: "Su petición fue aceptada. Envíe su mensaje otra vez; su correo pasa hasta el {date}.",
	Forever: "Su petición fue aceptada. Envíe su mensaje otra vez.", Declined: "Su petición fue denegada.",
	Contact: "También puede escribir o llamar:", TooMany: "Hoy hay demasiadas peticiones. Inténtelo de nuevo mañana.",
	UnknownTitle: "No existe este recibo", Unknown: "En esta dirección no hay ningún recibo, o ya no. Copie la dirección entera del mensaje que le fue devuelto.",
	TroubleTitle: "Ahora no", Trouble: "Esta página no se puede mostrar en este momento. Inténtelo de nuevo en un minuto.", Receipt: "Referencia",
	Complain: "Para reclamar sobre esta lista:", Home: "Sobre esta lista:",
	Personal: "El {date}, este servidor de correo rechazó un mensaje suyo porque su destinatario no acepta correo de usted.",
}, {
	Title:   "您的邮件被拒收",
	Refused: "{date}，本邮件服务器拒收了您的一封邮件。名单“{list}”中有您的地址、其域名或发送该邮件的服务器。",
	Client:  "{date}，本邮件服务器拒收了您的一封邮件，原因是发送服务器自报的名称不符合要求。",
	Way:     "收件人没有看到您的邮件。如有急事，请用其他方式联系对方。",
	Ask:     "申请放行",
	AskWhy:  "如果这是误判，请提出申请。本邮件服务器的管理人员会阅读您的申请，之后您的邮件便可能通过。",
	Note:    "您想告诉我们什么？（可不填）",
	Button:  "申请放行",
	Open:    "您已于 {date} 提出申请，正在等待人工处理。请明天再查看本页。",
	Granted: "您的申请已获批准。请重新发送邮件；{date} 之前您的邮件可以通过。",
	Forever: "您的申请已获批准。请重新发送邮件。", Declined: "您的申请未获批准。",
	Contact: "您也可以写信或致电：", TooMany: "今天的申请太多，请明天再试。",
	UnknownTitle: "没有此回执", Unknown: "此地址没有回执，或回执已不存在。请从退回的邮件中复制完整地址。",
	TroubleTitle: "暂时无法显示", Trouble: "此页暂时无法显示，请一分钟后再试。", Receipt: "编号",
	Complain: "如对此列表有异议，请联系：", Home: "关于此列表：",
	Personal: "{date}，本邮件服务器拒收了您的一封邮件，因为收件人不接收您的邮件。",
}}

// style is all of the page's; the header that allows it has its hash. It is for a phone first, and for either colour of paper.
const style = `
:root { color-scheme: light dark }
body { margin: 0; font: 1.0625rem/1.55 system-ui, sans-serif; background: #fff; color: #1f2328 }
main { max-width: 38rem; margin: 0 auto; padding: 2rem 1.25rem }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 1rem }
h2 { font-size: 1.125rem; margin: 2rem 0 .5rem }
p { margin: 0 0 1rem; overflow-wrap: anywhere }
.state { border-inline-start: .25rem solid #0b62c4; padding: .25rem 0 .25rem 1rem; margin-top: 1.5rem }
form { margin-bottom: 2rem }
label { display: block; margin-bottom: .25rem }
textarea { box-sizing: border-box; width: 100%; font: inherit; padding: .5rem; border: 1px solid #59636e; border-radius: .375rem; background: transparent; color: inherit }
button { margin-top: .75rem; font: inherit; font-weight: 600; padding: .625rem 1.25rem; min-height: 2.75rem; border: 0; border-radius: .375rem; background: #0b62c4; color: #fff }
a { color: #0b62c4 }
:focus-visible { outline: 3px solid #b35900; outline-offset: 2px }
.ref { color: #59636e; font-size: .875rem; margin-top: 2.5rem }
@media (prefers-color-scheme: dark) {
body { background: #0d1117; color: #e6edf3 } .ref { color: #9198a1 } .state { border-color: #58a6ff } textarea { border-color: #9198a1 } a { color: #58a6ff } button { background: #1f6feb }
}
`

// render writes the page. There is no template: package html/template looks methods up by their names, so that the linker must keep all
// methods of all packages, 12 MB of a program of 30. Whatever is no text of this file goes through escaped.
func (v *view) render() string {
	var b strings.Builder
	put := func(texts ...string) {
		for _, text := range texts {
			b.WriteString(text)
		}
	}
	put(`<!DOCTYPE html>
<html lang="`, v.language, `">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>`, escaped(v.heading), "</title>\n<style>", style, "</style>\n</head>\n<body>\n<main>\n<h1>", escaped(v.heading), "</h1>\n")
	for _, text := range v.text {
		put("<p>", escaped(text), "</p>\n")
	}
	if v.state != "" {
		put(`<p class="state" role="status">`, escaped(v.state), "</p>\n")
	}
	if v.asks {
		put("<h2>", escaped(v.words.Ask), "</h2>\n<p>", escaped(v.words.AskWhy), `</p>
<form method="post">
<label for="note">`, escaped(v.words.Note), `</label>
<textarea id="note" name="note" rows="3" maxlength="`, strconv.Itoa(MaxNote), `"></textarea>
<button>`, escaped(v.words.Button), "</button>\n</form>\n")
	}
	switch {
	case v.contact == "":
	case isLink(v.contact):
		put("<h2>", escaped(v.words.Contact), "</h2>\n<p><a href=\"", escaped(v.contact), `">`, escaped(v.contact), "</a></p>\n")
	default:
		put("<h2>", escaped(v.words.Contact), "</h2>\n<p>", escaped(v.contact), "</p>\n")
	}
	for _, link := range [...]struct{ words, to string }{{v.words.Complain, v.complaints}, {v.words.Home, v.homepage}} {
		if link.to != "" && isLink(link.to) {
			put("<p>", escaped(link.words), ` <a rel="noreferrer" href="`, escaped(link.to), `">`, escaped(link.to), "</a></p>\n")
		}
	}
	if v.ref != "" {
		put(`<p class="ref">`, escaped(v.words.Receipt), ": ", escaped(v.ref), "</p>\n")
	}
	put("</main>\n</body>\n</html>\n")
	return b.String()
}

// escaped is a text as HTML has it, in an element or a quoted attribute.
func escaped(text string) string { return html.EscapeString(text) }
