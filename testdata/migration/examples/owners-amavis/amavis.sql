CREATE TABLE users (id integer, priority integer, policy_id integer, email varchar(255), fullname text);
CREATE TABLE mailaddr (id integer, priority integer, email varchar(255));
CREATE TABLE wblist (rid integer, sid integer, wb varchar(10));
INSERT INTO users VALUES (1,9,1,'ann@here.example',''),(2,5,1,'@here.example',''),(3,0,1,'@.','');
INSERT INTO mailaddr VALUES (1,9,'promo@bulk.example'),(2,4,'@.bulk.example'),(3,5,'@partner.example'),(4,9,'friend@bulk.example'),(5,9,'bad@partner.example');
INSERT INTO wblist VALUES (1,1,'B'),(2,2,'B'),(2,3,'W'),(1,4,'W'),(3,2,'W'),(2,5,'B'),(1,3,'1.5');
