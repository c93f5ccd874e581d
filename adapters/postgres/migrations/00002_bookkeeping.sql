-- +goose Up

COMMENT ON SCHEMA fencelock IS 'Sessions, locks and fencing tokens of Fencelock.';

-- Two servers must not apply the same migration: the second one fails here, and is undone as a whole.
CREATE UNIQUE INDEX goose_db_version_version_id ON fencelock.goose_db_version (version_id);
COMMENT ON INDEX fencelock.goose_db_version_version_id IS 'Each migration is applied once.';
COMMENT ON TABLE  fencelock.goose_db_version IS 'Migrations of this schema that were applied; written by goose.';
COMMENT ON COLUMN fencelock.goose_db_version.id IS 'Number of the line.';
COMMENT ON COLUMN fencelock.goose_db_version.version_id IS 'Version that the migration leads to; 0 is the empty schema.';
COMMENT ON COLUMN fencelock.goose_db_version.is_applied IS 'Always true.';
COMMENT ON COLUMN fencelock.goose_db_version.tstamp IS 'When the migration was applied, in the time zone of the server that did.';

COMMENT ON TABLE  fencelock.goose_lock IS 'Which server migrates the schema; one row, written by goose.';
COMMENT ON COLUMN fencelock.goose_lock.lock_id IS 'Always the same number.';
COMMENT ON COLUMN fencelock.goose_lock.locked IS 'A server migrates, or died while it did.';
COMMENT ON COLUMN fencelock.goose_lock.locked_at IS 'When that server began.';
COMMENT ON COLUMN fencelock.goose_lock.locked_by IS 'That server: host, process id and a random number.';
COMMENT ON COLUMN fencelock.goose_lock.lease_expires_at IS 'When another server may go on, unless this one renews it.';
COMMENT ON COLUMN fencelock.goose_lock.updated_at IS 'When this row was written last.';
