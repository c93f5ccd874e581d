-- +goose Up

-- The ledger of one account is read payout by payout.
DROP INDEX payment.ledger_entry_account;
CREATE INDEX ledger_entry_account ON payment.ledger_entry (account, payout);
COMMENT ON INDEX payment.ledger_entry_account IS 'The entries of an account, by payout.';
