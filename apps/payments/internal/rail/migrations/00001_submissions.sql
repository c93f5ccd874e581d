-- +goose Up

CREATE TABLE rail.mark (
    resource text COLLATE "C" PRIMARY KEY,
    mark     bigint NOT NULL
);
COMMENT ON TABLE  rail.mark IS 'The highest token seen for each account. Never set it back by hand but as docs/fencing.md says.';
COMMENT ON COLUMN rail.mark.resource IS 'The account.';
COMMENT ON COLUMN rail.mark.mark IS 'The highest token that has submitted or looked up.';

CREATE TABLE rail.submission (
    number         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payout         text COLLATE "C" NOT NULL,
    account        text COLLATE "C" NOT NULL,
    amount         bigint      NOT NULL,
    destination    text        NOT NULL,
    token          bigint      NOT NULL,
    fenced         boolean     NOT NULL,
    submitted_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    outcome        text,
    rail_reference text        NOT NULL DEFAULT '',
    reason         text        NOT NULL DEFAULT '',
    answered_at    timestamptz,
    CHECK (amount > 0),
    CHECK (token > 0),
    CHECK (outcome IN ('ACKED', 'REJECTED')),
    CHECK ((outcome IS NULL) = (answered_at IS NULL))
);
CREATE UNIQUE INDEX submission_once ON rail.submission (payout) WHERE fenced;
CREATE INDEX submission_payout ON rail.submission (payout);
COMMENT ON INDEX  rail.submission_once IS 'A payout is submitted once.';
COMMENT ON INDEX  rail.submission_payout IS 'The submissions of a payout; with fencing off there can be several.';
COMMENT ON TABLE  rail.submission IS 'What was sent to the rail. The row is there before anything is sent.';
COMMENT ON COLUMN rail.submission.number IS 'In the order of the intents.';
COMMENT ON COLUMN rail.submission.payout IS 'Payout that was sent; the reference at the rail.';
COMMENT ON COLUMN rail.submission.account IS 'Account that it leaves.';
COMMENT ON COLUMN rail.submission.amount IS 'In minor units.';
COMMENT ON COLUMN rail.submission.destination IS 'Where it goes, as the rail knows it.';
COMMENT ON COLUMN rail.submission.token IS 'Token under which it was sent.';
COMMENT ON COLUMN rail.submission.fenced IS 'It was made with fencing on.';
COMMENT ON COLUMN rail.submission.submitted_at IS 'When the intent was written.';
COMMENT ON COLUMN rail.submission.outcome IS 'Written once. Null: not known, and perhaps never; the rail may have executed it or not.';
COMMENT ON COLUMN rail.submission.rail_reference IS 'The rail''s name for the transfer.';
COMMENT ON COLUMN rail.submission.reason IS 'Why the rail declined it.';
COMMENT ON COLUMN rail.submission.answered_at IS 'When the outcome was written.';

-- +goose StatementBegin
CREATE FUNCTION rail.keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a submission is never removed, and its outcome is written once' USING ERRCODE = 'integrity_constraint_violation';
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION rail.keep() IS 'Refuses to change or remove what was written.';
CREATE TRIGGER keep BEFORE DELETE OR TRUNCATE ON rail.submission EXECUTE FUNCTION rail.keep();
CREATE TRIGGER keep_outcome BEFORE UPDATE ON rail.submission FOR EACH ROW
    WHEN (OLD.outcome IS NOT NULL OR (OLD.number, OLD.payout, OLD.account, OLD.amount, OLD.destination, OLD.token, OLD.fenced, OLD.submitted_at)
        IS DISTINCT FROM (NEW.number, NEW.payout, NEW.account, NEW.amount, NEW.destination, NEW.token, NEW.fenced, NEW.submitted_at))
    EXECUTE FUNCTION rail.keep();

COMMENT ON SCHEMA rail IS 'Marks and submissions of the proxy before the payment rail.';
COMMENT ON TABLE  rail.goose_db_version IS 'Migrations of this schema that were applied; written by goose.';
COMMENT ON COLUMN rail.goose_db_version.id IS 'Number of the line.';
COMMENT ON COLUMN rail.goose_db_version.version_id IS 'Version that the migration leads to; 0 is the empty schema.';
COMMENT ON COLUMN rail.goose_db_version.is_applied IS 'Always true.';
COMMENT ON COLUMN rail.goose_db_version.tstamp IS 'When the migration was applied, in the time zone of the server that did.';
