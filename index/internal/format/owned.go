package format

import (
	"bytes"
	"strings"

	"blockd/lists"
	"blockd/mail/addr"
)

// The tags of keys that are about recipients. That of an owned entry is followed by the
// owner's key, endOwner, and what an entry of everybody would have as its key.
const (
	tagOwned     = 0x05
	endOwner     = 0x01
	tagOwner     = 0x08 // a marker: this owner has entries. 6 is taken by networks of IPv6
	tagRecipient = 0x09 // the address of a recipient, to whom mail is refused
)

// OwnedRoom holds every key of AppendOwned and AppendOwner of an owner and a sender, in octets.
const OwnedRoom = 3 + 2*MaxKey

// OwnerMask says which keys about recipients a store has.
type OwnerMask uint8

// The bits of the mask.
const (
	OwnerAddresses  OwnerMask = 1 << iota // owners that are mailboxes
	OwnerDomains                          // owners that are domains
	RecipientsAsKey                       // recipients that are refused, in the lists of everybody
	ownersKnown     = 1<<iota - 1
)

// OwnerBit is the bit of owners of this kind.
func OwnerBit(owner addr.Key) OwnerMask {
	if owner.Kind == addr.Address {
		return OwnerAddresses
	}
	return OwnerDomains
}

// AppendOwned begins the key of an owner's entry.
func AppendOwned(b []byte, owner string) []byte {
	return append(append(append(b, tagOwned), owner...), endOwner)
}

// AppendOwner appends the marker of an owner.
func AppendOwner(b []byte, owner string) []byte { return append(append(b, tagOwner), owner...) }

// AppendRecipient appends the key of a recipient that is refused, by itself or after AppendOwned.
func AppendRecipient(b []byte, recipient string) []byte {
	return append(append(b, tagRecipient), recipient...)
}

// IsOwner reports whether a stored key is the marker of an owner.
func IsOwner[T ~string | ~[]byte](key T) bool { return len(key) > 1 && key[0] == tagOwner }

// IsDerived reports whether a stored key is made of other keys, and no list has it.
func IsDerived[T ~string | ~[]byte](key T) bool { return IsDigest(key) || IsOwner(key) }

// IsPersonal reports whether a stored key is about recipients: no answer about a sender, no export
// and no walk over all entries has it.
func IsPersonal[T ~string | ~[]byte](key T) bool {
	return len(key) > 0 && (key[0] == tagOwned || key[0] == tagOwner || key[0] == tagRecipient)
}

// CutOwner is the owner of a stored key and what follows him; "" without an owner.
func CutOwner(key []byte) (owner, rest []byte) {
	if len(key) > 0 && key[0] == tagOwned {
		if n := bytes.IndexByte(key, endOwner); n > 0 {
			return key[1:n], key[n+1:]
		}
	}
	return nil, key
}

// OwnerOf is the owner of a stored key, "" without one.
func OwnerOf(key string) string {
	if key != "" && key[0] == tagOwned {
		if n := strings.IndexByte(key, endOwner); n > 0 {
			return key[1:n]
		}
	}
	return ""
}

// IsOwned reports whether a stored key is an entry of this owner.
func IsOwned(key string, owner []byte) bool {
	n := 1 + len(owner)
	return len(key) > n && key[0] == tagOwned && key[n] == endOwner && key[1:n] == string(owner)
}

// maskOf is the bit of a personal key; ok is false for what begins like one and is none.
func maskOf(key []byte) (mask OwnerMask, ok bool) {
	switch key[0] {
	case tagOwner:
		return OwnerBit(KeyOf(string(key[1:]))), len(key) > 1 && key[1] >= ' '
	case tagRecipient:
		return RecipientsAsKey, len(key) > 1 && key[1] >= ' '
	}
	owner, rest := CutOwner(key)
	if len(rest) > 1 && rest[0] == tagRecipient {
		rest = rest[1:]
	}
	return 0, len(owner) > 0 && owner[0] >= ' ' && len(rest) > 0 && rest[0] >= ' '
}

// MaskOf is the bit of a personal key that MaskOf's caller has made of an entry.
func MaskOf(key string) OwnerMask {
	mask, _ := maskOf([]byte(key))
	return mask
}

// describePersonal gives item what a personal key names.
func describePersonal(item *lists.Item, key string) {
	owner, rest := CutOwner([]byte(key))
	if len(owner) > 0 {
		item.Owner = KeyOf(string(owner))
	}
	if len(rest) > 1 && rest[0] == tagRecipient {
		item.Kind, item.Key = lists.Recipient, KeyOf(string(rest[1:]))
		return
	}
	item.Key = KeyOf(string(rest))
	item.Kind = KeyKind(item.Key.Kind)
}

// OwnerCount are the markers of a store and their entries.
type OwnerCount struct{ Keys, Entries uint64 }
