//! Document commands: DOC.PUT, DOC.GET, DOC.DEL.
//!
//! Each command accesses one of the documents that HTTP serves. With these commands, a transaction can write
//! documents, keys and messages as one record. Replication and the creation of databases need HTTP.
//!
//! Invariants
//! - An error about documents begins with CouchDB's name of the error, in capitals and without underscores.
//!   The reason follows: `CONFLICT Document update conflict.`
//! - Design documents are written by server admins alone: unlike HTTP, these commands do not know who is the
//!   admin of one database.
//! - In a transaction, a command sees the writes of earlier commands of the transaction.

use documents::{
    DESIGN_PREFIX, DocError, DocRev, DocumentView, EditRequest, LOCAL_PREFIX, NewDocument, Pick, Snapshot,
    USERS_DATABASE, check_id,
};
use engine::{CommandError, Context, unit::Named};
pub(crate) use rows::ROWS;
use wire::Args;

/// `DOC.PUT database id json [rev]`
fn put(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let mut document = NewDocument::parse(args.at(3), &cx.host.config.document_limits()).map_err(refused)?;
    if let Some(rev) = args.get(4) {
        document.rev = Some(parse_rev(rev)?);
    }
    edit(cx, args, document)
}

/// `DOC.DEL database id rev`
fn del(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let rev = parse_rev(args.at(3))?;
    let Named { id, .. } = name(args)?;
    edit(cx, args, NewDocument::deletion(id.into(), Some(rev)))
}

fn edit(cx: &mut Context<'_, '_>, args: Args<'_>, document: NewDocument) -> Result<(), CommandError> {
    let Named { database, id } = name(args)?;
    if cx.host.documents().is_none() {
        return Err(CommandError::Loading);
    }
    check_id(id).map_err(refused)?;
    if id.starts_with(LOCAL_PREFIX) {
        return Err(CommandError::Text("BADREQUEST _local documents are written over HTTP"));
    }
    let is_admin = cx.session.login.principal().is_some_and(|principal| principal.is_admin);
    if id.starts_with(DESIGN_PREFIX) && !is_admin {
        return Err(CommandError::Text("FORBIDDEN You are not a db or server admin."));
    }
    let request = EditRequest::new(id.into(), document, true, |_| None).map_err(refused)?;
    let rev = cx.unit.documents(database).and_then(|writer| writer.edit(request)).map_err(refused)?;
    cx.reply.bulk(rev.to_string().as_bytes());
    Ok(())
}

/// `DOC.GET database id [rev]`
fn get(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len() > 4 {
        return Err(CommandError::Syntax);
    }
    let Named { database, id } = name(args)?;
    if database == USERS_DATABASE {
        return Err(CommandError::Text(
            "FORBIDDEN Documents of _users are read over HTTP alone, which shows users only their own: they hold hashes of \
             passwords.",
        ));
    }
    let pick = match args.get(3).map(parse_rev).transpose()? {
        None => Pick::Winner,
        Some(DocRev::Tree(rev)) => Pick::Rev(rev),
        Some(DocRev::Local(_)) => return Err(refused(documents::RevError.into())),
    };
    let snapshot = if cx.in_transaction {
        cx.unit.documents(database).map_err(refused)?.snapshot()
    } else {
        let documents = cx.host.documents().ok_or(CommandError::Loading)?;
        let found = documents.database(database);
        if found.is_err() {
            cx.unit.note_seen(documents.names_lsn());
        }
        found.map_err(refused)?.snapshot()
    };
    cx.unit.note_seen(snapshot.document_lsn(id));
    match shown(&snapshot, id, pick) {
        Ok(json) => cx.reply.bulk(&json),
        Err(DocError::Missing | DocError::Deleted) => cx.reply.null(),
        Err(error) => return Err(refused(error)),
    }
    Ok(())
}

fn shown(snapshot: &Snapshot, id: &str, pick: Pick) -> Result<Vec<u8>, DocError> {
    let found = snapshot.open(id, pick)?;
    let (leaf, body) = (found.leaf(), snapshot.body(found.leaf())?);
    let mut json = Vec::with_capacity(body.len() + id.len() + 64);
    DocumentView::new(id, DocRev::Tree(found.rev()), leaf.deleted, &body).render(&mut json);
    Ok(json)
}

fn name(args: Args<'_>) -> Result<Named<'_>, CommandError> {
    Named::of_call(args).ok_or(CommandError::Text("BADREQUEST names of databases and documents are UTF-8"))
}

fn parse_rev(text: &[u8]) -> Result<DocRev, CommandError> {
    let parsed = std::str::from_utf8(text).map_err(|_| documents::RevError).and_then(str::parse);
    parsed.map_err(|error: documents::RevError| refused(error.into()))
}

fn refused(error: DocError) -> CommandError {
    let code = error.error().replace('_', "").to_uppercase();
    CommandError::Composed(format!("{code} {}", error.reason()))
}

mod rows;
#[cfg(test)]
mod tests;
