require ["fileinto", "reject"];
if address :is "from" "promo@bulk.example" { discard; stop; }
if address :domain :is "From" ["bulk.example", "bulk.test"] { discard; }
if envelope :is "from" "x@y.example" { reject "no"; stop; }
if address :localpart "from" "offers" { discard; }
if address :contains "from" "spam" { discard; }
