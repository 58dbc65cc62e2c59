CREATE TABLE userpref (username varchar(100), preference varchar(50), value varchar(100), prefid int);
INSERT INTO userpref VALUES ('ann@here.example','blacklist_from','*@bulk.example x@y.example',1),('%here.example','whitelist_from','*@*.good.example',2),
('bob','blacklist_from','*@bulk.example',3),('ann@here.example','whitelist_auth','*@bank.example',4),('ann@here.example','blacklist_from','*spam*',5),
('@GLOBAL','blacklist_from','z@z.example',6),('ann@here.example','unblacklist_from','z@z.example',7),('ann@here.example','whitelist_from','friend@bulk.example',8);
