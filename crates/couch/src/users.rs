//! Users as documents: the database `_users`.
//!
//! ```text
//! PUT /_users/org.couchdb.user:NAME -> password derived -> rules of CouchDB -> document --.
//!                                                       '-> user (crate `access`) --------+-> one record
//! ACL SETUSER NAME ---------------------------------------> user ---------------------------> record
//! ```
//!
//! There is one registry of users for both protocols, in the settings of the data (`engine::users`): no
//! log-in reads a document. A document of `_users` is the origin of a user's roles and of one of the user's
//! passwords. A change of its winning revision, and the change of the user that follows from it, are one
//! record, so a replica, a backup or a restart has both or neither.
//!
//! ACL SETUSER changes the rights in the Redis protocol and the passwords of Redis' kind. It leaves the
//! document as it is. A user need not have a document, like an admin in the configuration of CouchDB.
//!
//! This module has the rules for a user's document, and derives the user from the document. Requests for such
//! documents are in `user_documents`.
//!
//! Invariants
//! - An edit of a document must pass the rules of CouchDB for it, whatever the route ([`Editor::check`]).
//! - A change after which the document has no winning revision, or one that is deleted or that the rules do
//!   not accept, removes the user, except `default`.

use access::{DerivedPassword, ITERATIONS_MAX, Prf, User as Principal, is_role, is_user_name};
use documents::{DocError, EditRequest, History, Pick, Snapshot, Writer};
use engine::{
    clients::DEFAULT_USER,
    users::{USER_BYTES_MAX, have_room, setting_of},
};
use keyspace::DataSettings;
use serde_json::{Map, Value};

/// The beginning of the id of a user's document.
const PREFIX: &str = "org.couchdb.user:";

/// The maximum number of new passwords that requests derive at a time.
pub(super) const DERIVATIONS_MAX: usize = 2;

/// The maximum iterations of a password that a user gives itself: this server computes as many iterations for
/// each login attempt with that password. Passwords that this server derives have
/// [`access::ITERATIONS_DEFAULT`].
const OWN_ITERATIONS_MAX: u32 = 1_000_000;

/// The maximum bytes of all roles of a user.
const ROLES_BYTES_MAX: usize = 32 << 10;

pub(super) type Members = Map<String, Value>;

fn forbidden<T>(reason: &'static str) -> Result<T, DocError> {
    Err(DocError::Forbidden(reason.into()))
}

/// The name of the user whose document has this id, if it is the id of one.
pub(super) fn name_of(id: &str) -> Option<&str> {
    id.strip_prefix(PREFIX)
}

/// The client that changes the document of a user.
pub(super) struct Editor {
    pub(super) name: Option<String>,
    pub(super) is_admin: bool,
}

impl Editor {
    /// Checks an edit by the rules of CouchDB for documents of users.
    pub(super) fn check(&self, writer: &Writer, edit: &EditRequest) -> Result<(), DocError> {
        let snapshot = writer.snapshot();
        let old = winner(&snapshot, &edit.id)?;
        if edit.deleted {
            if self.is_admin {
                return Ok(());
            }
            if !old.is_some_and(|old| self.is(old.get("name"))) {
                return forbidden("Only admins may delete other user docs.");
            }
            return check_branches(&snapshot, edit);
        }
        let new: Members =
            serde_json::from_slice(&edit.body).map_err(|_| DocError::bad_request("invalid UTF-8 JSON"))?;
        let declared = Declared::of(&edit.id, &new)?;
        if let Some(old) = &old
            && old.get("name") != new.get("name")
        {
            return forbidden("Usernames can not be changed.");
        }
        if self.is_admin {
            return Ok(());
        }
        if !self.is(new.get("name")) {
            return forbidden("You may only update your own user document.");
        }
        // A user that ACL SETUSER has made must not give itself another password by creating a document.
        let Some(old) = old else { return forbidden("Only admins may create user docs.") };
        if sorted(&roles_of(&old).unwrap_or_default()) != sorted(&declared.roles) {
            return forbidden("Only _admin may edit roles");
        }
        let password = declared.password;
        if password.as_ref().is_some_and(|new| new.iterations() > OWN_ITERATIONS_MAX)
            && password != password_of(&old).unwrap_or_default()
        {
            return forbidden("Iteration count is too high for this server");
        }
        check_branches(&snapshot, edit)
    }

    fn is(&self, name: Option<&Value>) -> bool {
        self.name.as_deref().is_some_and(|own| name.and_then(Value::as_str) == Some(own))
    }
}

/// Refuses a user's edit of its own document by which a branch other than the winner's could win: the other
/// branch may have roles that the user has lost since.
fn check_branches(snapshot: &Snapshot, edit: &EditRequest) -> Result<(), DocError> {
    let leaves = snapshot.open_all(&edit.id)?;
    let Some((winner, others)) = leaves.split_first() else { return Ok(()) };
    let follows_winner = match &edit.history {
        // The edit itself fails if its parent is no leaf.
        History::Parent(parent) => !others.iter().any(|other| *parent == Some(other.rev())),
        History::Path(path) => path.revs().any(|rev| rev == winner.rev()),
    };
    if !follows_winner {
        return forbidden("Only admins may make or change branches of a user doc.");
    }
    if edit.deleted && others.iter().any(|other| !other.leaf().deleted) {
        return forbidden("Only admins may delete a user doc that has conflicts.");
    }
    Ok(())
}

fn sorted(roles: &[String]) -> Vec<&str> {
    let mut roles: Vec<&str> = roles.iter().map(String::as_str).collect();
    roles.sort_unstable();
    roles
}

/// The winning revision of a document, if it is not deleted.
fn winner(snapshot: &Snapshot, id: &str) -> Result<Option<Members>, DocError> {
    let found = match snapshot.open(id, Pick::Winner) {
        Err(DocError::Missing | DocError::Deleted) => return Ok(None),
        found => found?,
    };
    let body = snapshot.body(found.leaf())?;
    Ok(Some(serde_json::from_slice(&body).map_err(|_| DocError::bad_request("invalid UTF-8 JSON"))?))
}

/// The rights and the password that the document of a user declares.
struct Declared {
    roles: Vec<String>,
    password: Option<DerivedPassword>,
}

impl Declared {
    /// Reads a document, and refuses one that breaks the rules.
    fn of(id: &str, members: &Members) -> Result<Declared, DocError> {
        if members.get("type").and_then(Value::as_str) != Some("user") {
            return forbidden("doc.type must be user");
        }
        let name = members.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let Some(name) = name else { return forbidden("doc.name is required") };
        let roles = roles_of(members)?;
        if name_of(id) != Some(name) {
            return forbidden("Doc ID must be of the form org.couchdb.user:name");
        }
        let password = password_of(members)?;
        if roles.iter().any(|role| role.starts_with('_')) {
            return forbidden("No system roles (starting with underscore) in users db.");
        }
        if roles.iter().map(String::len).sum::<usize>() > ROLES_BYTES_MAX {
            return forbidden("The roles of a user take 32 KiB at most.");
        }
        if name.starts_with('_') {
            return forbidden("Username may not start with underscore.");
        }
        if name.contains(':') {
            return forbidden("Character `:` is not allowed in usernames.");
        }
        if !is_user_name(name.as_bytes()) {
            return forbidden("Usernames can't contain spaces or null characters");
        }
        if name == DEFAULT_USER {
            return forbidden("The user default has no document: ACL SETUSER changes it.");
        }
        Ok(Declared { roles, password })
    }

    /// The user that is declared: a new one, unless `before` is given.
    fn user(self, before: Option<Principal>) -> Principal {
        let roles = self.roles.iter().filter(|role| is_role(role.as_bytes()));
        Principal::of_document(before, roles.map(|role| role.as_bytes().into()).collect(), self.password)
    }
}

fn roles_of(members: &Members) -> Result<Vec<String>, DocError> {
    let roles = match members.get("roles") {
        None | Some(Value::Null | Value::Bool(false)) => return forbidden("doc.roles must exist"),
        Some(Value::Array(roles)) => roles,
        Some(_) => return forbidden("doc.roles must be an array"),
    };
    let roles: Option<Vec<String>> = roles.iter().map(|role| role.as_str().map(str::to_owned)).collect();
    roles.map_or_else(|| forbidden("doc.roles can only contain strings"), Ok)
}

/// The password that a document declares, if it does.
fn password_of(members: &Members) -> Result<Option<DerivedPassword>, DocError> {
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    let scheme = match members.get("password_scheme") {
        // Before schemes had names, every password was hashed with SHA-1: the scheme `simple`.
        None | Some(Value::Null) if members.contains_key("password_sha") => "simple",
        None | Some(Value::Null) => return Ok(None),
        Some(scheme) => scheme.as_str().unwrap_or("?"),
    };
    if scheme != "pbkdf2" {
        let reason = format!("Password scheme `{scheme}` not supported.");
        return Err(DocError::Forbidden(reason.into()));
    }
    let given = members.get("iterations");
    let iterations = match given.and_then(Value::as_f64) {
        None => return forbidden("iterations must be a number."),
        Some(count) if count < 1.0 => return forbidden("Iteration count is too low for this server"),
        Some(count) if count > f64::from(ITERATIONS_MAX) => {
            return forbidden("Iteration count is too high for this server");
        }
        // CouchDB stores a number that is not an integer, also 2.0, and then answers every login of this user
        // with 500.
        Some(_) => match given.and_then(Value::as_u64) {
            None => return forbidden("iterations must be an integer."),
            Some(count) => count as u32,
        },
    };
    let Some(key) = text("derived_key") else { return forbidden("derived_key must be a string.") };
    let Some(prf) = Prf::named(text("pbkdf2_prf").unwrap_or("sha").as_bytes()) else {
        return forbidden("PRF is invalid");
    };
    let derived = hex::decode(key)
        .ok()
        .and_then(|key| DerivedPassword::new(prf, iterations, text("salt").unwrap_or("").as_bytes(), &key));
    derived.map_or_else(|| forbidden("derived_key and salt must be those of a password."), |it| Ok(Some(it)))
}

/// A change of a setting of the data; without a value, its removal.
pub(super) struct SettingChange {
    pub(super) name: Box<[u8]>,
    pub(super) value: Option<Box<[u8]>>,
}

/// The changes of the registry of users that follow from the writer's changes of `_users`. New users get the
/// birth `new_birth`.
///
/// # Errors
/// If a document cannot be read, a user would take too many bytes, or there would be too many users or too
/// many bytes of all users.
pub(super) fn setting_changes(
    writer: &Writer,
    data: &DataSettings,
    new_birth: u64,
) -> Result<Vec<SettingChange>, DocError> {
    let snapshot = writer.snapshot();
    let mut changes = Vec::new();
    for (id, was_gone) in writer.changed() {
        let Some(name) = name_of(id) else { continue };
        let setting = setting_of(name.as_bytes());
        let before = data.get(&setting);
        // An earlier version stored documents that break the rules. These declare no user.
        let declared = winner(&snapshot, id)?.and_then(|members| Declared::of(id, &members).ok());
        let value: Option<Box<[u8]>> = declared.map(|declared| {
            // A user that was deleted and made again is another one.
            let before = before.filter(|_| !was_gone).and_then(|record| Principal::decode(record).ok());
            declared.user(before.clone()).succeeding(before.as_ref(), new_birth).encode().into()
        });
        let bytes = value.as_ref().map_or(0, |value| setting.len() + value.len());
        if bytes > USER_BYTES_MAX {
            return forbidden("A user has more than 64 KiB of rules and roles.");
        }
        if value.is_some() || before.is_some() && name != DEFAULT_USER {
            changes.push(SettingChange { name: setting.into(), value });
        }
    }
    if !have_room(data, changes.iter().map(|change| (&*change.name, change.value.as_deref()))) {
        return forbidden("There would be more than 10000 users, or more than 16 MiB of them.");
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(id: &str, document: &Value) -> Option<String> {
        let members = document.as_object().unwrap();
        Declared::of(id, members).err().map(|error| error.reason())
    }

    #[test]
    fn documents_are_refused_with_the_texts_of_couchdb() {
        let id = "org.couchdb.user:jan";
        let user = |changes: Value| {
            let mut user = serde_json::json!({ "type": "user", "name": "jan", "roles": [] });
            user.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            user
        };
        assert_eq!(refusal(id, &user(serde_json::json!({ "roles": ["a", "b c"] }))), None);
        for (changes, reason) in [
            (serde_json::json!({ "type": "x" }), "doc.type must be user"),
            (serde_json::json!({ "name": "" }), "doc.name is required"),
            (serde_json::json!({ "roles": null }), "doc.roles must exist"),
            (serde_json::json!({ "roles": {} }), "doc.roles must be an array"),
            (serde_json::json!({ "roles": [1] }), "doc.roles can only contain strings"),
            (serde_json::json!({ "name": "x" }), "Doc ID must be of the form org.couchdb.user:name"),
            (
                serde_json::json!({ "roles": ["_admin"] }),
                "No system roles (starting with underscore) in users db.",
            ),
            (serde_json::json!({ "password_scheme": "bcrypt" }), "Password scheme `bcrypt` not supported."),
            (serde_json::json!({ "password_sha": "a" }), "Password scheme `simple` not supported."),
            (serde_json::json!({ "password_scheme": "pbkdf2" }), "iterations must be a number."),
            (
                serde_json::json!({ "password_scheme": "pbkdf2", "iterations": 1 }),
                "derived_key must be a string.",
            ),
            (
                serde_json::json!({ "password_scheme": "pbkdf2", "iterations": 1e9, "derived_key": "" }),
                "Iteration count is too high for this server",
            ),
            (
                serde_json::json!({ "password_scheme": "pbkdf2", "iterations": 1.5, "derived_key": "00" }),
                "iterations must be an integer.",
            ),
            (
                serde_json::json!({
                    "password_scheme": "pbkdf2", "iterations": 1, "derived_key": "00", "pbkdf2_prf": "md5"
                }),
                "PRF is invalid",
            ),
        ] {
            assert_eq!(refusal(id, &user(changes.clone())).as_deref(), Some(reason), "{changes}");
        }
        for (name, reason) in [
            ("_a", "Username may not start with underscore."),
            ("a:b", "Character `:` is not allowed in usernames."),
            ("a b", "Usernames can't contain spaces or null characters"),
            ("default", "The user default has no document: ACL SETUSER changes it."),
        ] {
            let refused = refusal(&format!("{PREFIX}{name}"), &user(serde_json::json!({ "name": name })));
            assert_eq!(refused.as_deref(), Some(reason));
        }
    }

    #[test]
    fn a_password_of_couchdb_1_is_read_as_one_of_sha_1() {
        let key = "4b007901b765489abead49d926f721d065a429c1";
        let members = serde_json::json!({
            "password_scheme": "pbkdf2", "iterations": 4096, "derived_key": key, "salt": "salt"
        });
        let password = password_of(members.as_object().unwrap()).unwrap().unwrap();
        assert!(password.accepts(b"password") && password.prf() == Prf::Sha1);
    }
}
