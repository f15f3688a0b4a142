-- Why: every call that may change something writes an entry of the audit log before it is answered, and each index of it is part of that. The newest first are
-- what the primary key gives backwards; ages are in the order in which entries were written, so that a summary of each range of pages finds the old ones.
drop index audit_newest_first;
drop index audit_by_age;
create index audit_by_age on audit using brin (at);
