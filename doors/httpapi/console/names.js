// How names of mail are written: so that nothing of them is hidden, and that long ones break where they may.

import { html } from './dom.js';

// The numbers of RFC 3492, section 5.
const [base, least, most, skew, damp, firstBias, firstCode] = [36, 1, 26, 38, 700, 72, 128];

const digit = (c) => (c >= 48 && c <= 57 ? c - 22 : c >= 97 && c <= 122 ? c - 97 : base);

/** decoded is an A-label without its "xn--" in the letters that it stands for; null if it is none. */
function decoded(text) {
  const end = text.lastIndexOf('-');
  const out = [...text.slice(0, Math.max(end, 0))].map((c) => c.codePointAt(0));
  let [n, i, bias] = [firstCode, 0, firstBias];
  for (let at = end + 1; at < text.length;) {
    const old = i;
    for (let weight = 1, k = base; ; k += base) {
      const d = at < text.length ? digit(text.charCodeAt(at++)) : base;
      if (d >= base) return null;
      i += d * weight;
      const t = Math.min(Math.max(k - bias, least), most);
      if (d < t) break;
      weight *= base - t;
    }
    const length = out.length + 1;
    let delta = Math.floor((i - old) / (old === 0 ? damp : 2));
    delta += Math.floor(delta / length);
    let k = 0;
    for (; delta > ((base - least) * most) >> 1; k += base) delta = Math.floor(delta / (base - least));
    bias = k + Math.floor(((base - least + 1) * delta) / (delta + skew));
    n += Math.floor(i / length);
    i %= length;
    if (n > 0x10ffff) return null;
    out.splice(i++, 0, n);
  }
  return String.fromCodePoint(...out);
}

// otherSpelling is a name with its domain in the other of its two spellings; '' if it has one alone.
function otherSpelling(text) {
  const at = text.lastIndexOf('@') + 1;
  const domain = text.slice(at);
  if (/(^|\.)xn--/i.test(domain)) {
    const labels = domain.split('.').map((label) => (/^xn--/i.test(label) ? decoded(label.slice(4).toLowerCase()) : label));
    return labels.includes(null) ? '' : text.slice(0, at) + labels.join('.');
  }
  if (!/[^\0-\x7f]/.test(domain)) return '';
  const url = new URL(location.href);
  url.hostname = domain; // the browser's own way to A-labels
  return url.hostname === location.hostname ? '' : text.slice(0, at) + url.hostname;
}

// What a browser would act on, or nobody could see.
const odd = /([\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u00ad\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0])/u;

/** shown is a text in which nothing is hidden. */
export const shown = (text) => text.split(odd).map((part, i) => i % 2 === 0 ? part
  : html('span', { class: 'odd', title: 'a character that cannot be seen' }, `\\u{${part.codePointAt(0).toString(16)}}`));

const short = 22; // letters, for which each column of addresses has room

// A part of an address that is short stays in one piece, and a long one may break before its dots.
const piece = (text) => (text.length <= short ? html('span', { class: 'keep' }, shown(text))
  : text.split(/(?=\.)|(?<=:)/).flatMap((part, i) => [i > 0 && html('wbr'), shown(part)]));

/** written is an address, a domain, a network or an entry: whole, and breakable behind "@" first. */
export function written(text) {
  const number = /^[\d.]+(\/\d+)?$/.test(text);
  const parts = number ? [text] : text.split(/(?<=@)/).flatMap((part, i) => [i > 0 && html('wbr'), piece(part)]);
  const other = otherSpelling(text);
  return [html('code', { class: number && 'keep' }, parts), other && html('span', { class: 'spelling' }, ' (', shown(other), ')')];
}
