-- +goose Up

-- Triggers run with the rights of whoever writes, which is the server. Without a path of their own they would call
-- a function that somebody else has made to fit better than the one that is meant.
ALTER FUNCTION fencelock.tell_freed() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION fencelock.tell_session_over() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION fencelock.tell_revoked() SET search_path = pg_catalog, pg_temp;
