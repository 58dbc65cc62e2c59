# A message was moved from Junk. Thrown away, it is junk all the same; else the sender is not blocked any more.
require ["copy", "environment", "imapsieve", "variables", "vnd.dovecot.pipe"];

if environment :matches "imap.mailbox" ["Trash", "Trash/*", "Trash.*", "Deleted*"] {
  stop;
}
if environment :matches "imap.user" "*" {
  pipe :copy :try "blockd-junk" ["${1}", "--undo"];
}
