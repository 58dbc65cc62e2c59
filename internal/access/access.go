// Package access tells what another user of this machine may do with a file, by
// owner, group and mode of the file and of each folder above it. Root can open
// everything; with this package it learns what a daemon cannot open.
package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Want is what a user wants to do with a file.
type Want uint32

// The values of Want are the bits of a mode. On a folder, Read lists it, Write makes
// and removes names in it, and Search opens what it holds.
const (
	Search Want = 1 << iota
	Write
	Read
)

func (w Want) String() string {
	var words []string
	for _, bit := range []struct {
		want Want
		word string
	}{{Read, "read"}, {Write, "write"}, {Search, "search"}} {
		if w&bit.want != 0 {
			words = append(words, bit.word)
		}
	}
	return strings.Join(words, " and ")
}

// User is a user as the kernel sees it.
type User struct {
	UID    int
	Groups []int // all of them, the first one too
}

// Self is the user that this process runs as.
func Self() User {
	groups, err := os.Getgroups()
	if err != nil {
		groups = nil
	}
	return User{os.Geteuid(), append(groups, os.Getegid())}
}

// ByID is the user with a number, and its groups as the system's files have them. The
// user always has the group gid.
func ByID(uid, gid int) User {
	u := User{uid, []int{gid}}
	known, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return u
	}
	ids, err := known.GroupIds()
	if err != nil {
		return u
	}
	for _, id := range ids {
		if n, err := strconv.Atoi(id); err == nil && !slices.Contains(u.Groups, n) {
			u.Groups = append(u.Groups, n)
		}
	}
	return u
}

// Process is the user that a process runs as.
func Process(pid int) (User, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return User{}, err
	}
	u := User{UID: -1}
	for line := range strings.Lines(string(text)) {
		key, values, _ := strings.Cut(line, ":")
		numbers := strings.Fields(values)
		switch {
		case key == "Uid" && len(numbers) == 4:
			u.UID, err = strconv.Atoi(numbers[1]) // the effective one
		case key == "Gid" && len(numbers) == 4:
			numbers = numbers[1:2]
			fallthrough
		case key == "Groups":
			for _, n := range numbers {
				id, bad := strconv.Atoi(n)
				u.Groups, err = append(u.Groups, id), errors.Join(err, bad)
			}
		}
	}
	if u.UID < 0 && err == nil {
		err = fmt.Errorf("process %d: no user", pid)
	}
	return u, err
}

// String is the name of the user, or its number.
func (u User) String() string { return userName(u.UID) }

// Number is the user by its number, which nobody chooses.
func (u User) Number() string { return "uid " + strconv.Itoa(u.UID) }

// Group is the name of its first group, or the number.
func (u User) Group() string {
	if len(u.Groups) == 0 {
		return "root"
	}
	return strings.TrimPrefix(groupName(u.Groups[0]), "gid ")
}

func userName(uid int) string {
	if known, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return known.Username
	}
	return "uid " + strconv.Itoa(uid)
}

func groupName(gid int) string {
	if known, err := user.LookupGroupId(strconv.Itoa(gid)); err == nil {
		return known.Name
	}
	return "gid " + strconv.Itoa(gid)
}

// Denied is a file, or a folder above it, that u may not use as it wants.
type Denied struct {
	User  User
	Want  Want
	Path  string // of the closed file or folder
	Owner string // its user and group
	Mode  fs.FileMode
	ACL   bool // it has an access control list as well, which this package does not read
}

func (e *Denied) Error() string {
	text := fmt.Sprintf("%s may not %s %s (%s %04o)", e.User, e.Want, e.Path, e.Owner, e.Mode.Perm())
	if e.ACL {
		text += ", unless its access control list says so"
	}
	return text
}

// maxLinks bounds symbolic links in a path, as Linux does.
const maxLinks = 40

// Check returns nil if u may do what it wants with path, which must be absolute, a
// *Denied if it may not, and any other error if that cannot be found out: the file does
// not exist, or this process may not look.
func (u User) Check(path string, want Want) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s: want an absolute path", path)
	}
	parts, at := split(path), "/"
	if err := u.may(at, Search); err != nil {
		return err
	}
	for links := 0; len(parts) > 0; parts = parts[1:] {
		next := filepath.Join(at, parts[0])
		info, err := os.Lstat(next)
		if err != nil {
			return err
		}
		if info.Mode().Type() == fs.ModeSymlink {
			if links++; links > maxLinks {
				return fmt.Errorf("%s: %w", path, syscall.ELOOP)
			}
			target, err := os.Readlink(next)
			if err != nil {
				return err
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			parts = append(append([]string{""}, split(target)...), parts[1:]...)
			continue
		}
		asked := want
		if len(parts) > 1 {
			asked = Search
		}
		if err := u.may(next, asked); err != nil {
			return err
		}
		at = next
	}
	return nil
}

// split returns the names of a path. It keeps "..": after a link that is not the name before it.
func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}

// may judges one file or folder by itself.
func (u User) may(path string, want Want) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || u.UID == 0 {
		return nil
	}
	bits := Want(info.Mode().Perm())
	switch {
	case u.UID == int(stat.Uid):
		bits >>= 6
	case slices.Contains(u.Groups, int(stat.Gid)):
		bits >>= 3
	}
	if bits&want == want {
		return nil
	}
	_, err = unix.Getxattr(path, "system.posix_acl_access", nil)
	return &Denied{User: u, Want: want, Path: path, Mode: info.Mode(), ACL: err == nil,
		Owner: userName(int(stat.Uid)) + ":" + groupName(int(stat.Gid))}
}
