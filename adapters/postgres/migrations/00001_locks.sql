-- +goose Up

CREATE SEQUENCE fencelock.fencing_token_seq AS bigint MINVALUE 1 NO CYCLE CACHE 1;
COMMENT ON SEQUENCE fencelock.fencing_token_seq IS
    'Fencing tokens of all keys. Never set it back: a token that comes twice lets a stale holder write.';

CREATE TABLE fencelock.lock_meta (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    floor     bigint  NOT NULL DEFAULT 0,
    raises    bigint  NOT NULL DEFAULT 0
);
COMMENT ON TABLE  fencelock.lock_meta IS 'One row about the store as a whole.';
COMMENT ON COLUMN fencelock.lock_meta.singleton IS 'Always true: there is one row.';
COMMENT ON COLUMN fencelock.lock_meta.floor IS
    'Grants with this token or a lower one are over: an operator raised the token floor, as after a restore. 0: never raised.';
COMMENT ON COLUMN fencelock.lock_meta.raises IS 'How often the token floor was raised.';
INSERT INTO fencelock.lock_meta DEFAULT VALUES;

CREATE TABLE fencelock.lock_session (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    secret     uuid        NOT NULL UNIQUE,
    owner      text        NOT NULL,
    ttl        interval    NOT NULL,
    created_at timestamptz NOT NULL,
    renewed_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    ended_at   timestamptz,
    metadata   jsonb
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
CREATE INDEX lock_session_ended ON fencelock.lock_session (id) WHERE ended_at IS NOT NULL;
COMMENT ON INDEX fencelock.lock_session_ended IS 'Sessions that ended lately, for tidying.';
COMMENT ON TABLE  fencelock.lock_session IS
    'Sessions. One lives while ended_at is null and expires_at is ahead; all its locks live and die with it. To kill one by hand, set ended_at.';
COMMENT ON COLUMN fencelock.lock_session.id IS 'Number of the session, for the other tables and for people.';
COMMENT ON COLUMN fencelock.lock_session.secret IS 'The id that the client presents. Who knows it may use the session: keep it out of logs.';
COMMENT ON COLUMN fencelock.lock_session.owner IS 'Who asked for it, in its own words; proves nothing.';
COMMENT ON COLUMN fencelock.lock_session.ttl IS 'Time to live after a heartbeat.';
COMMENT ON COLUMN fencelock.lock_session.created_at IS 'When it was opened.';
COMMENT ON COLUMN fencelock.lock_session.renewed_at IS 'When the last heartbeat was accepted.';
COMMENT ON COLUMN fencelock.lock_session.expires_at IS 'When it dies unless a heartbeat comes.';
COMMENT ON COLUMN fencelock.lock_session.ended_at IS 'When it was closed, or found expired. Final.';
COMMENT ON COLUMN fencelock.lock_session.metadata IS 'What its opener attached.';

CREATE TABLE fencelock.lock_entry (
    namespace   text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    token       bigint      NOT NULL DEFAULT 0,
    floor       bigint      NOT NULL DEFAULT 0,
    session     bigint,
    request_id  text COLLATE "C",
    granted_at  timestamptz,
    lease       interval,
    leased_at   timestamptz,
    lease_until timestamptz,
    awaited     boolean     NOT NULL DEFAULT false,
    idle_since  timestamptz,
    metadata    jsonb,
    PRIMARY KEY (namespace, key),
    CHECK ((lease IS NULL) = (leased_at IS NULL) AND (lease IS NULL) = (lease_until IS NULL)),
    CHECK (session IS NULL OR (token > 0 AND request_id IS NOT NULL AND granted_at IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
CREATE INDEX lock_entry_session ON fencelock.lock_entry (session) WHERE session IS NOT NULL;
COMMENT ON INDEX fencelock.lock_entry_session IS 'The locks of a session.';
CREATE INDEX lock_entry_leased ON fencelock.lock_entry (session) WHERE lease IS NOT NULL AND session IS NOT NULL;
COMMENT ON INDEX fencelock.lock_entry_leased IS 'Grants with a lease, for tidying.';
COMMENT ON TABLE  fencelock.lock_entry IS
    'One row for each key in use. Its grant is over if session is null, if that session is over, if lease_until has passed, or if token is not above lock_meta.floor.';
COMMENT ON COLUMN fencelock.lock_entry.namespace IS 'Namespace of the key.';
COMMENT ON COLUMN fencelock.lock_entry.key IS 'Name of the key in its namespace.';
COMMENT ON COLUMN fencelock.lock_entry.token IS 'Fencing token of the last grant; 0 before the first. The next one is higher.';
COMMENT ON COLUMN fencelock.lock_entry.floor IS 'Highest token that a revocation of this key has condemned; 0 if none has.';
COMMENT ON COLUMN fencelock.lock_entry.session IS 'Holder: lock_session.id. Null once the grant is released, revoked or tidied.';
COMMENT ON COLUMN fencelock.lock_entry.request_id IS 'Request that made the grant; sent again, it gets the same grant.';
COMMENT ON COLUMN fencelock.lock_entry.granted_at IS 'When the grant was made.';
COMMENT ON COLUMN fencelock.lock_entry.lease IS 'Cap on the life of the grant; null if it lives as long as its session.';
COMMENT ON COLUMN fencelock.lock_entry.leased_at IS 'When the lease began, or was extended last.';
COMMENT ON COLUMN fencelock.lock_entry.lease_until IS 'When the lease lapses unless it is extended.';
COMMENT ON COLUMN fencelock.lock_entry.awaited IS 'A server has waiters for this key: the end of the grant is notified.';
COMMENT ON COLUMN fencelock.lock_entry.idle_since IS 'When the grant ended and nobody took the key; long idle rows are deleted.';
COMMENT ON COLUMN fencelock.lock_entry.metadata IS 'What the holder attached to the grant.';

CREATE TABLE fencelock.lock_revocation (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace        text COLLATE "C",
    key              text COLLATE "C",
    operator         text        NOT NULL,
    reason           text        NOT NULL,
    at               timestamptz NOT NULL,
    previous_owner   text,
    previous_session uuid,
    previous_token   bigint,
    floor            bigint      NOT NULL,
    CHECK ((namespace IS NULL) = (key IS NULL))
);
CREATE INDEX lock_revocation_namespace ON fencelock.lock_revocation (namespace, id);
COMMENT ON INDEX fencelock.lock_revocation_namespace IS 'The revocations of a namespace, in order.';
COMMENT ON TABLE  fencelock.lock_revocation IS 'Audit record of what operators did. Append only.';
COMMENT ON COLUMN fencelock.lock_revocation.id IS 'In the order of the acts.';
COMMENT ON COLUMN fencelock.lock_revocation.namespace IS 'Namespace of the key; null if the token floor was raised, which ended all grants.';
COMMENT ON COLUMN fencelock.lock_revocation.key IS 'Key whose grant was revoked; null if the token floor was raised.';
COMMENT ON COLUMN fencelock.lock_revocation.operator IS 'Who did it.';
COMMENT ON COLUMN fencelock.lock_revocation.reason IS 'Why, in the operator''s words.';
COMMENT ON COLUMN fencelock.lock_revocation.at IS 'When.';
COMMENT ON COLUMN fencelock.lock_revocation.previous_owner IS 'Owner of the session whose grant was ended.';
COMMENT ON COLUMN fencelock.lock_revocation.previous_session IS 'Secret of that session; see lock_session.secret.';
COMMENT ON COLUMN fencelock.lock_revocation.previous_token IS 'Token of the grant that was ended.';
COMMENT ON COLUMN fencelock.lock_revocation.floor IS 'The next token is above this number.';

-- Notifications wake waiters and tell servers at once, also where somebody changed a row by hand. They are hints on the
-- channel "fencelock", carry no secret, and nothing is correct only because of them.

-- +goose StatementBegin
CREATE FUNCTION fencelock.tell_freed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('fencelock', json_build_object('kind', 'freed', 'namespace', OLD.namespace, 'key', OLD.key)::text);
    RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencelock.tell_freed() IS 'Wakes the waiters of a key whose grant ended.';
CREATE TRIGGER tell_freed AFTER UPDATE ON fencelock.lock_entry FOR EACH ROW
    WHEN (OLD.awaited AND NEW.session IS NULL AND OLD.session IS NOT NULL) EXECUTE FUNCTION fencelock.tell_freed();

-- +goose StatementBegin
CREATE FUNCTION fencelock.tell_session_over() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('fencelock', json_build_object('kind', 'session_over', 'session', OLD.id)::text);
    RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencelock.tell_session_over() IS 'Tells the servers of a session that ended.';
CREATE TRIGGER tell_session_ended AFTER UPDATE ON fencelock.lock_session FOR EACH ROW
    WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL) EXECUTE FUNCTION fencelock.tell_session_over();
CREATE TRIGGER tell_session_deleted AFTER DELETE ON fencelock.lock_session FOR EACH ROW
    WHEN (OLD.ended_at IS NULL) EXECUTE FUNCTION fencelock.tell_session_over();

-- +goose StatementBegin
CREATE FUNCTION fencelock.tell_revoked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('fencelock', json_build_object('kind', 'revoked', 'revocation', NEW.id)::text);
    RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencelock.tell_revoked() IS 'Tells the servers what an operator did.';
CREATE TRIGGER tell_revoked AFTER INSERT ON fencelock.lock_revocation FOR EACH ROW
    EXECUTE FUNCTION fencelock.tell_revoked();
