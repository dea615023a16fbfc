//! The document databases that a command locks, before its slots.

use crate::{
    Call, Executor, Flags, Host, Keys, Row, Session,
    row::{innermost, wrapped},
    unit::{Databases, Named},
};

impl Executor {
    /// Locks the databases of the documents that a command, or the transaction that it runs, may change or
    /// must see consistently with the rest of its unit.
    #[inline]
    pub(super) fn lock_databases(
        &self,
        row: &Row,
        call: Call<'_>,
        session: &Session,
        host: &Host,
    ) -> Option<Box<Databases>> {
        let changes = Flags::DOCUMENTS.or(Flags::WRITE);
        let runs = || session.transaction.as_ref().is_some_and(|it| it.any(Flags::DOCUMENTS));
        match row.keys {
            Keys::None if row.flags.has(changes) => self.lock_named(call, session, host),
            Keys::Computed { .. } if row.flags.has(Flags::WRAPS) => self.lock_wrapped(call, session, host),
            Keys::Queued if runs() => self.lock_named(call, session, host),
            _ => None,
        }
    }

    #[cold]
    fn lock_wrapped(&self, call: Call<'_>, session: &Session, host: &Host) -> Option<Box<Databases>> {
        let (found, args) = wrapped(self.table, call.args).ok()?;
        let call = Call { args, ..call };
        found.row.flags.has(Flags::DOCUMENTS).then(|| self.lock_named(call, session, host))?
    }

    #[cold]
    fn lock_named(&self, call: Call<'_>, session: &Session, host: &Host) -> Option<Box<Databases>> {
        let documents = host.documents()?;
        let databases = match &session.transaction {
            Some(transaction) => {
                let queued = transaction.commands().iter();
                let queued = queued.filter(|it| it.flags.has(Flags::DOCUMENTS));
                let named = queued.filter_map(|it| Named::of_call(innermost(it.found, it.args.as_args()).1));
                Databases::lock(documents, named)
            }
            None => Databases::lock(documents, Named::of_call(call.args).into_iter()),
        };
        Some(Box::new(databases))
    }
}
