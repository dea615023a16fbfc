//! GROUP MEMBERS and GROUP INFO.

use engine::{CommandError, Context};
use wire::{Args, ReplyWriter};

use super::view;

/// `GROUP INFO`
pub(super) fn info(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let group = view(cx)?;
    let leader = group.leader();
    let voters = group.members.iter().filter(|member| member.has_vote).count();
    let reply = &mut cx.reply;
    reply.map(8);
    reply.bulk(b"name");
    reply.bulk(group.name.as_bytes());
    reply.bulk(b"id");
    reply.bulk(group.id.as_bytes());
    reply.bulk(b"state");
    reply.bulk(group.standing.name().as_bytes());
    reply.bulk(b"term");
    reply.integer(group.term as i64);
    reply.bulk(b"leader");
    reply.bulk_or_null(group.leader.as_ref().map(String::as_bytes));
    reply.bulk(b"leader-address");
    match leader {
        Some(leader) => reply.bulk_display(&leader.address),
        None => reply.null(),
    }
    reply.bulk(b"members");
    reply.count(group.members.len());
    reply.bulk(b"voters");
    reply.count(voters);
    Ok(())
}

/// `GROUP MEMBERS`
pub(super) fn members(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let group = view(cx)?;
    let reply = &mut cx.reply;
    reply.array(group.members.len());
    for member in &group.members {
        reply.map(11);
        reply.bulk(b"id");
        reply.bulk(member.id.as_bytes());
        reply.bulk(b"address");
        reply.bulk_display(&member.address);
        reply.bulk(b"http-port");
        reply.integer(member.http_port.into());
        reply.bulk(b"kind");
        reply.bulk(member.kind.name().as_bytes());
        reply.bulk(b"role");
        reply.bulk(match &group.leader {
            Some(leader) if *leader == member.id => b"leader",
            Some(_) => b"follower",
            None => b"unknown",
        });
        reply.bulk(b"self");
        reply.integer(member.is_self.into());
        number(reply, b"epoch", member.epoch);
        number(reply, b"durable", member.durable.map(lsn::Lsn::get));
        number(reply, b"committed", member.committed.map(lsn::Lsn::get));
        number(reply, b"lag-bytes", member.lag_bytes);
        number(reply, b"heard-ms", member.heard_ms);
    }
    Ok(())
}

/// Writes a name and a number, or null if it is not known.
fn number(reply: &mut ReplyWriter<'_>, name: &[u8], value: Option<u64>) {
    reply.bulk(name);
    match value {
        Some(value) => reply.integer(i64::try_from(value).unwrap_or(i64::MAX)),
        None => reply.null(),
    }
}

#[cfg(test)]
mod tests {
    use engine::group::NO_GROUP;

    use crate::testing::{check, check_group, sample_group};

    #[test]
    fn group_info_names_the_leader() {
        check_group(
            &sample_group(),
            &[(
                "group info",
                "[\"name\", \"shop\", \"id\", \"0123456789abcdef0123456789abcdef\", \"state\", \"member\", \"term\", :7, \"leader\", \
                 \"00000000000000a1\", \"leader-address\", \"10.0.0.1:7001\", \"members\", :3, \"voters\", :2]",
                "{\"name\": \"shop\", \"id\": \"0123456789abcdef0123456789abcdef\", \"state\": \"member\", \"term\": :7, \"leader\": \
                 \"00000000000000a1\", \"leader-address\": \"10.0.0.1:7001\", \"members\": :3, \"voters\": :2}",
            )],
        );
        let mut group = sample_group();
        group.leader = None;
        check_group(
            &group,
            &[(
                "group info",
                "[\"name\", \"shop\", \"id\", \"0123456789abcdef0123456789abcdef\", \"state\", \"member\", \"term\", :7, \"leader\", \
                 nil, \"leader-address\", nil, \"members\", :3, \"voters\", :2]",
                "{\"name\": \"shop\", \"id\": \"0123456789abcdef0123456789abcdef\", \"state\": \"member\", \"term\": :7, \"leader\": \
                 nil, \"leader-address\": nil, \"members\": :3, \"voters\": :2}",
            )],
        );
    }

    #[test]
    fn members_are_listed_in_the_order_in_which_they_joined() {
        check_group(
            &sample_group(),
            &[(
                "group members",
                "[[\"id\", \"00000000000000a1\", \"address\", \"10.0.0.1:7001\", \"http-port\", :7101, \"kind\", \
                 \"voter\", \"role\", \"leader\", \"self\", :1, \"epoch\", :7, \"durable\", :8192, \"committed\", :4096, \
                 \"lag-bytes\", :0, \"heard-ms\", nil], [\"id\", \"00000000000000b2\", \"address\", \
                 \"db2.example:7002\", \"http-port\", :7102, \"kind\", \"voter\", \"role\", \"follower\", \"self\", \
                 :0, \"epoch\", :7, \"durable\", :4096, \"committed\", :4096, \"lag-bytes\", :4096, \"heard-ms\", :12], [\"id\", \
                 \"00000000000000c3\", \"address\", \"[::1]:7003\", \"http-port\", :7103, \"kind\", \"learner\", \
                 \"role\", \"follower\", \"self\", :0, \"epoch\", nil, \"durable\", nil, \"committed\", nil, \"lag-bytes\", nil, \
                 \"heard-ms\", nil]]",
                "[{\"id\": \"00000000000000a1\", \"address\": \"10.0.0.1:7001\", \"http-port\": :7101, \"kind\": \
                 \"voter\", \"role\": \"leader\", \"self\": :1, \"epoch\": :7, \"durable\": :8192, \"committed\": :4096, \
                 \"lag-bytes\": :0, \"heard-ms\": nil}, {\"id\": \"00000000000000b2\", \"address\": \
                 \"db2.example:7002\", \"http-port\": :7102, \"kind\": \"voter\", \"role\": \"follower\", \"self\": \
                 :0, \"epoch\": :7, \"durable\": :4096, \"committed\": :4096, \"lag-bytes\": :4096, \"heard-ms\": :12}, {\"id\": \
                 \"00000000000000c3\", \"address\": \"[::1]:7003\", \"http-port\": :7103, \"kind\": \"learner\", \
                 \"role\": \"follower\", \"self\": :0, \"epoch\": nil, \"durable\": nil, \"committed\": nil, \"lag-bytes\": nil, \
                 \"heard-ms\": nil}]",
            )],
        );
    }

    #[test]
    fn without_a_known_leader_no_role_is_known() {
        let mut server = crate::testing::TestServer::new();
        let mut group = sample_group();
        group.leader = None;
        *server.host.group.view.lock() = Some(group);
        let members = server.run("group members");
        assert_eq!(members.matches("\"role\", \"unknown\"").count(), 3, "{members}");
    }

    #[test]
    fn a_server_without_a_group_says_so() {
        let refused = format!("-{NO_GROUP}");
        check(&[
            ("group info", &refused),
            ("group members", &refused),
            ("group info x", "-ERR wrong number of arguments for 'group|info' command"),
            ("group members x", "-ERR wrong number of arguments for 'group|members' command"),
            ("group", "-ERR wrong number of arguments for 'group' command"),
            ("group foo", "-ERR unknown subcommand 'foo'. Try GROUP HELP."),
        ]);
    }
}
