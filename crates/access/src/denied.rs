//! A refusal, with the exact texts of Redis 7.2 and later.

use crate::command_list::{CommandId, CommandList};
use crate::denial_log::Reason;

/// The part of a call that the user has no right to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied<'a> {
    /// The command.
    Command(CommandId),
    /// A key: the user has no right to use it in the way in which the call uses it.
    Key(&'a [u8]),
    /// A channel.
    Channel(&'a [u8]),
}

impl<'a> Denied<'a> {
    /// The whole reply to the call. As in Redis, the reply names neither the key nor the channel.
    pub fn reply(&self, user: &[u8], commands: &CommandList) -> Vec<u8> {
        [b"NOPERM ", &*self.brief(user, commands)].concat()
    }

    /// The whole reply to a script that has made the call.
    pub fn reply_in_script(&self, user: &[u8], commands: &CommandList) -> Vec<u8> {
        [b"ERR ACL failure in script: ", &*self.brief(user, commands)].concat()
    }

    /// The reply of ACL DRYRUN, which names the key or channel.
    pub fn verdict(&self, user: &[u8], commands: &CommandList) -> Vec<u8> {
        let named = |name: &[u8], what: &[u8]| {
            [b"User ", user, b" has no permissions to access the '", name, b"' ", what].concat()
        };
        match self {
            Denied::Command(_) => self.brief(user, commands),
            Denied::Key(key) => named(key, b"key"),
            Denied::Channel(channel) => named(channel, b"channel"),
        }
    }

    /// The reason and the object of the entry for this refusal in the log of denials.
    pub fn entry(&self, commands: &CommandList) -> (Reason, &'a [u8]) {
        match self {
            Denied::Command(command) => (Reason::Command, commands.name(*command).as_bytes()),
            Denied::Key(key) => (Reason::Key, key),
            Denied::Channel(channel) => (Reason::Channel, channel),
        }
    }

    fn brief(&self, user: &[u8], commands: &CommandList) -> Vec<u8> {
        match self {
            Denied::Command(command) => {
                let name = commands.name(*command).as_bytes();
                [b"User ", user, b" has no permissions to run the '", name, b"' command"].concat()
            }
            Denied::Key(_) => b"No permissions to access a key".to_vec(),
            Denied::Channel(_) => b"No permissions to access a channel".to_vec(),
        }
    }
}
