# A message was moved to Junk: blockd blocks its sender for this user.
require ["copy", "environment", "imapsieve", "variables", "vnd.dovecot.pipe"];

if environment :matches "imap.user" "*" {
  pipe :copy :try "blockd-junk" ["${1}"];
}
