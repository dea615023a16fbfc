//! Requests for documents of the database `_users`: the rights that they need, and the replacement of
//! passwords in written documents.
//!
//! The rules for such a document, and the user that it defines, are in `users`.
//!
//! Invariants
//! - No password is stored or returned: it is replaced before the document reaches the database.
//! - Every edit of a user's document passes [`guard`], whatever the route.
//! - Users read and change their own document only. Of the documents of others, they read the id, the
//!   revision, and the members that `users-public-fields` names. Lists, feeds and queries are for admins.

use std::sync::Arc;

use access::{DerivedPassword, ITERATIONS_DEFAULT, SALT_BYTES_MAX};
use documents::{BodyHash, DESIGN_PREFIX, Database, DocError, EditRequest, Pick, USERS_DATABASE};
use http::StatusCode;
use serde_json::Value;
use settings::Key;

use super::{
    edit::Edit,
    failure::Failure,
    ids::new_uuid,
    reply::{self, Reply},
    request::Call,
    users::{Editor, Members, name_of},
};

/// The members of a document that a new password replaces.
const PASSWORD_FIELDS: &[&str] = &[
    "derived_key",
    "iterations",
    "password",
    "password_scheme",
    "password_sha",
    "pbkdf2_prf",
    "preserve_salt",
    "salt",
];

/// Admits a request below `/_users`: admins, and users to their own document.
pub(super) fn admit(call: &Call, path: &[&str]) -> Result<(), Failure> {
    if call.user.is_admin {
        return Ok(());
    }
    let Some(name) = &call.user.name else {
        return Err(Failure::Unauthorized("You are not authorized to access this db."));
    };
    match path {
        [id, ..] if name_of(id) == Some(name) => Ok(()),
        // The document names its user; `Editor::check` refuses the document of another user.
        [] if call.method() == "POST" => Ok(()),
        // The reply does not reveal whether there is such a user.
        [id, ..] if name_of(id).is_some() => Err(DocError::Missing.into()),
        [id, ..] if *id == "_design" || id.starts_with(DESIGN_PREFIX) => {
            Err(Failure::Forbidden("Only administrators can view design docs in the users database."))
        }
        _ => Err(Failure::Forbidden("You are not a db or server admin.")),
    }
}

/// The public members of another user's document, for a user who is no admin. `None` for all other requests,
/// and if the settings make no members public. An error if there is no such document, or if it has no public
/// member.
pub(super) async fn public_part(
    call: &Call,
    database: &Arc<Database>,
    path: &[&str],
) -> Result<Option<Reply>, Failure> {
    let [id] = path else { return Ok(None) };
    let is_of_other = name_of(id).is_some_and(|name| call.user.name.as_deref() != Some(name));
    if call.user.is_admin || call.user.name.is_none() || !is_of_other || !call.is_read() {
        return Ok(None);
    }
    let public = call.thread.host().settings().text(Key::UsersPublicFields).to_owned();
    let public: Vec<&str> = public.split(',').map(str::trim).filter(|field| !field.is_empty()).collect();
    if public.is_empty() {
        return Ok(None);
    }
    let snapshot = call.snapshot_of(database, id).await?;
    let found = snapshot.open(id, Pick::Winner)?;
    let members = members_of(&snapshot.body(found.leaf())?)?;
    let shown: Members = members.into_iter().filter(|(name, _)| is_public(name, &public)).collect();
    if shown.is_empty() {
        return Err(DocError::Missing.into());
    }
    let mut all = Members::new();
    all.insert("_id".into(), (*id).into());
    all.insert("_rev".into(), found.rev().to_string().into());
    all.extend(shown);
    Ok(Some(reply::value(StatusCode::OK, &all)))
}

/// Whether others may see this member of a user's document. They never see [`PASSWORD_FIELDS`].
fn is_public(name: &str, public: &[&str]) -> bool {
    public.contains(&name) && !PASSWORD_FIELDS.contains(&name)
}

/// Prepares an edit, of any database, for being made. In an edit of a user's document the password is
/// replaced by the members derived from it; whether the client may make this edit is checked when it is made.
/// Other edits are returned unchanged.
///
/// # Errors
/// If a client that is no admin edits a `_local` document of `_users`, or a password is no string or cannot
/// be derived now.
pub(super) async fn guard(call: &Call, database: &Database, edit: Edit) -> Result<Edit, Failure> {
    match edit {
        Edit::Document(edit, stored)
            if **database.name() == *USERS_DATABASE && !edit.id.starts_with(DESIGN_PREFIX) =>
        {
            let editor = Editor { name: call.user.name.clone(), is_admin: call.user.is_admin };
            Ok(Edit::User(without_password(call, edit).await?, stored, editor))
        }
        Edit::Local { .. } if **database.name() == *USERS_DATABASE && !call.user.is_admin => {
            Err(Failure::Forbidden("You are not a db or server admin."))
        }
        other => Ok(other),
    }
}

/// Replaces the password of a document by the members derived from the password.
async fn without_password(call: &Call, mut edit: EditRequest) -> Result<EditRequest, Failure> {
    let mut members = members_of(&edit.body)?;
    let password = match members.get("password") {
        None | Some(Value::Null) => return Ok(edit),
        Some(Value::String(password)) => password.clone(),
        Some(_) => return Err(Failure::bad_request("Password value must be a string")),
    };
    let salt = match (members.get("preserve_salt"), members.get("salt")) {
        (Some(Value::Bool(true)), Some(Value::String(salt))) if salt.len() <= SALT_BYTES_MAX => salt.clone(),
        _ => new_uuid(call.thread.host()),
    };
    let derived = {
        let _permit = call.thread.front.password_derivations.acquire().await.map_err(|_| Failure::Busy)?;
        let salt = salt.clone();
        let derive =
            move || DerivedPassword::derive(password.as_bytes(), salt.as_bytes(), ITERATIONS_DEFAULT);
        tokio::task::spawn_blocking(derive).await.ok().flatten().ok_or(Failure::Busy)?
    };
    members.retain(|name, _| !PASSWORD_FIELDS.contains(&name.as_str()));
    let mut stored = Members::new();
    let fields: [(&str, Value); 5] = [
        ("password_scheme", "pbkdf2".into()),
        ("pbkdf2_prf", derived.prf().name().into()),
        ("salt", salt.into()),
        ("iterations", derived.iterations().into()),
        ("derived_key", hex::encode(derived.key()).into()),
    ];
    stored.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
    stored.extend(members);
    let body = Value::Object(stored).to_string().into_bytes();
    (edit.body_hash, edit.body) = (BodyHash::of(&body), body.into());
    Ok(edit)
}

fn members_of(body: &[u8]) -> Result<Members, Failure> {
    serde_json::from_slice(body).map_err(|_| Failure::INVALID_JSON)
}
