-- +goose Up

CREATE TABLE payment.account (
    id        text COLLATE "C" PRIMARY KEY,
    balance   bigint      NOT NULL,
    opening   bigint      NOT NULL,
    fence     bigint      NOT NULL DEFAULT 0,
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (id <> 'rail'),
    CHECK (opening >= 0),
    CHECK (fence >= 0)
);
COMMENT ON TABLE  payment.account IS 'Accounts. The lock that protects one is the key payout:ID.';
COMMENT ON COLUMN payment.account.id IS 'Its name. The name rail is kept for the entries of money that has left.';
COMMENT ON COLUMN payment.account.balance IS 'In minor units, as the last posting wrote it.';
COMMENT ON COLUMN payment.account.opening IS 'Balance to begin with; balance is to be opening plus its entries.';
COMMENT ON COLUMN payment.account.fence IS 'The highest token that has claimed; 0 before the first.';
COMMENT ON COLUMN payment.account.opened_at IS 'When it was opened.';

CREATE TABLE payment.payout (
    number         bigint GENERATED ALWAYS AS IDENTITY,
    id             text COLLATE "C" PRIMARY KEY,
    account        text COLLATE "C" NOT NULL REFERENCES payment.account,
    amount         bigint      NOT NULL,
    destination    text        NOT NULL,
    state          text        NOT NULL DEFAULT 'PENDING',
    token          bigint      NOT NULL DEFAULT 0,
    claim          bigint      NOT NULL DEFAULT 0,
    rail_reference text        NOT NULL DEFAULT '',
    reason         text        NOT NULL DEFAULT '',
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (amount > 0),
    CHECK (state IN ('PENDING', 'CLAIMED', 'RAIL_SUBMITTED', 'RAIL_ACKED', 'POSTED', 'FAILED', 'RAIL_AMBIGUOUS', 'ABANDONED')),
    CHECK (token >= 0 AND claim >= 0)
);
CREATE UNIQUE INDEX payout_number ON payment.payout (number);
CREATE INDEX payout_state ON payment.payout (state, number);
COMMENT ON INDEX  payment.payout_number IS 'Payouts in order, for listing.';
COMMENT ON INDEX  payment.payout_state IS 'Payouts of a state in order, for polling.';
COMMENT ON TABLE  payment.payout IS 'Payouts, and where each stands. Who writes one holds the row of its account.';
COMMENT ON COLUMN payment.payout.number IS 'In the order in which they were asked for.';
COMMENT ON COLUMN payment.payout.id IS 'Its name.';
COMMENT ON COLUMN payment.payout.account IS 'Account that it leaves.';
COMMENT ON COLUMN payment.payout.amount IS 'In minor units.';
COMMENT ON COLUMN payment.payout.destination IS 'Where it goes, as the rail knows it.';
COMMENT ON COLUMN payment.payout.state IS 'Where it stands.';
COMMENT ON COLUMN payment.payout.token IS 'Token under which the state was written; 0 for PENDING.';
COMMENT ON COLUMN payment.payout.claim IS 'Token of the last claim; 0 before the first.';
COMMENT ON COLUMN payment.payout.rail_reference IS 'The rail''s name for the transfer; empty while there is none.';
COMMENT ON COLUMN payment.payout.reason IS 'Why it is FAILED, ABANDONED or RAIL_AMBIGUOUS; else empty.';
COMMENT ON COLUMN payment.payout.created_at IS 'When it was asked for.';
COMMENT ON COLUMN payment.payout.changed_at IS 'When the state was written.';

CREATE TABLE payment.ledger_entry (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payout     text COLLATE "C" NOT NULL REFERENCES payment.payout,
    account    text COLLATE "C" NOT NULL,
    amount     bigint      NOT NULL,
    token      bigint      NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (amount <> 0)
);
CREATE INDEX ledger_entry_account ON payment.ledger_entry (account);
CREATE INDEX ledger_entry_payout ON payment.ledger_entry (payout);
COMMENT ON INDEX  payment.ledger_entry_account IS 'The entries of an account.';
COMMENT ON INDEX  payment.ledger_entry_payout IS 'The entries of a payout.';
COMMENT ON TABLE  payment.ledger_entry IS 'Double-entry ledger: a posting writes two entries whose sum is 0. Append only.';
COMMENT ON COLUMN payment.ledger_entry.number IS 'In the order of writing, for one account.';
COMMENT ON COLUMN payment.ledger_entry.payout IS 'Payout that was posted.';
COMMENT ON COLUMN payment.ledger_entry.account IS 'Account whose money it is, or rail for money that has left.';
COMMENT ON COLUMN payment.ledger_entry.amount IS 'In minor units; negative where it leaves.';
COMMENT ON COLUMN payment.ledger_entry.token IS 'Token of the posting.';
COMMENT ON COLUMN payment.ledger_entry.written_at IS 'When.';

CREATE TABLE payment.payout_event (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payout     text COLLATE "C" NOT NULL,
    account    text COLLATE "C" NOT NULL,
    from_state text,
    to_state   text        NOT NULL,
    token      bigint      NOT NULL,
    fence      bigint      NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE  payment.payout_event IS 'Every writing of a payout''s state. Append only: the evidence of who wrote what, and that nobody wrote below the fence.';
COMMENT ON COLUMN payment.payout_event.number IS 'In the order of writing, for one account.';
COMMENT ON COLUMN payment.payout_event.payout IS 'Payout that was written.';
COMMENT ON COLUMN payment.payout_event.account IS 'Account that it leaves.';
COMMENT ON COLUMN payment.payout_event.from_state IS 'State before; null where it was created.';
COMMENT ON COLUMN payment.payout_event.to_state IS 'State that was written; that of before where a payout that an earlier holder left behind was claimed.';
COMMENT ON COLUMN payment.payout_event.token IS 'Token of the write; 0 where it was created.';
COMMENT ON COLUMN payment.payout_event.fence IS 'The account''s fence just before the write.';
COMMENT ON COLUMN payment.payout_event.at IS 'When.';

-- +goose StatementBegin
CREATE FUNCTION payment.keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append only', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION payment.keep() IS 'Refuses to change or remove what was written.';
CREATE TRIGGER keep BEFORE UPDATE OR DELETE OR TRUNCATE ON payment.ledger_entry EXECUTE FUNCTION payment.keep();
CREATE TRIGGER keep BEFORE UPDATE OR DELETE OR TRUNCATE ON payment.payout_event EXECUTE FUNCTION payment.keep();

COMMENT ON SCHEMA payment IS 'Accounts, payouts and the ledger of the payment resource.';
COMMENT ON TABLE  payment.goose_db_version IS 'Migrations of this schema that were applied; written by goose.';
COMMENT ON COLUMN payment.goose_db_version.id IS 'Number of the line.';
COMMENT ON COLUMN payment.goose_db_version.version_id IS 'Version that the migration leads to; 0 is the empty schema.';
COMMENT ON COLUMN payment.goose_db_version.is_applied IS 'Always true.';
COMMENT ON COLUMN payment.goose_db_version.tstamp IS 'When the migration was applied, in the time zone of the server that did.';
