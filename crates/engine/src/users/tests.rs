//! Tests of the users that follow from records and settings; no command runs.

use keyspace::{AccessClock, Effect, Freed, Keyspace, LIBRARIES_SLOT, Options};

use super::*;
use crate::{clients::tests::connected, row::samples};

struct World {
    keyspace: Keyspace,
    clients: Clients,
    users: Users,
}

impl World {
    fn new() -> World {
        World {
            keyspace: Keyspace::new(Options { hash_seed: 1 }),
            clients: Clients::new(),
            users: Users::new(samples::table()),
        }
    }

    /// Records a user, or its removal.
    fn put(&self, name: &str, record: Option<&[u8]>) -> Arc<UserSet> {
        let mut slot = self.keyspace.lock(LIBRARIES_SLOT);
        let name = setting_of(name.as_bytes());
        let effect = Effect::Setting { name: &name, value: record };
        slot.apply(&effect, AccessClock::default(), &mut Freed::new());
        let lsn = slot.last_lsn().get() + 1;
        slot.set_last_lsn(Lsn::new(lsn));
        drop(slot);
        self.users.refresh(&self.keyspace, &self.clients)
    }

    fn refresh(&self) -> Arc<UserSet> {
        self.users.refresh(&self.keyspace, &self.clients)
    }
}

#[test]
fn only_a_change_of_users_makes_another_generation() {
    let world = World::new();
    let told = Arc::new(AtomicU64::new(0));
    let counted = told.clone();
    world.users.observe(move || _ = counted.fetch_add(1, Ordering::Relaxed));
    let first = world.refresh();
    assert_eq!((first.generation, first.iter().len()), (1, 1));
    let record = User::all_powerful().encode();
    let second = world.put("a", Some(&record));
    assert_eq!((second.generation, second.lsn), (2, Lsn::new(1)));
    assert!(second.get(b"a").expect("known").rights.are_unrestricted());
    let mut slot = world.keyspace.lock(LIBRARIES_SLOT);
    let effect = Effect::Setting { name: b"other", value: Some(b"1") };
    slot.apply(&effect, AccessClock::default(), &mut Freed::new());
    slot.set_last_lsn(Lsn::new(9));
    drop(slot);
    assert!(!world.users.is_current(&second, &world.keyspace));
    let third = world.refresh();
    assert_eq!((third.generation, third.lsn), (2, Lsn::new(1)), "the users are the same");
    assert!(world.users.is_current(&third, &world.keyspace));
    assert_eq!(world.put("a", None).generation, 3);
    assert_eq!(told.load(Ordering::Relaxed), 3, "observers are told of each generation");
}

#[test]
fn a_record_that_cannot_be_read_gives_no_rights() {
    let world = World::new();
    let users = world.put("a", Some(b"\xff"));
    let user = users.get(b"a").expect("known");
    assert!(!user.user.is_enabled && !user.user.accepts(b"") && !user.rights.are_unrestricted());
    let users = world.put(DEFAULT_USER, Some(b""));
    assert!(!users.default_user().admits_everybody());
}

#[test]
fn requirepass_counts_until_the_default_user_has_a_record() {
    let world = World::new();
    assert!(world.refresh().default_user().admits_everybody());
    let default_password = Some(PasswordHash::of(b"pw"));
    world.users.configure(UserSettings { default_password, ..UserSettings::DEFAULT });
    let users = world.refresh();
    assert!(!users.default_user().admits_everybody() && users.default_user().user.accepts(b"pw"));
    let users = world.put(DEFAULT_USER, Some(&User::initial(false).encode()));
    assert!(!users.default_user().user.accepts(b"pw"));
    assert!(world.put(DEFAULT_USER, None).default_user().user.accepts(b"pw"));
}

#[test]
fn the_user_of_servers_follows_the_settings_until_it_has_a_record() {
    let world = World::new();
    let with = |servers| world.users.configure(UserSettings { servers, ..UserSettings::DEFAULT });
    with(Some((b"servers".as_slice().into(), PasswordHash::of(b"pw"))));
    let users = world.refresh();
    let user = users.get(b"servers").expect("by the settings");
    assert!(user.user.accepts(b"pw") && !user.has_record() && !user.rights.are_unrestricted());
    for (id, command) in world.users.commands().iter() {
        let row = world.users.table().resolve(command.name.as_bytes());
        let is_between = row.is_some_and(|row| row.flags.has(Flags::BETWEEN_SERVERS));
        assert_eq!(user.rights.allow(id), is_between || command.is_for_all, "{}", command.name);
    }
    let users = world.put("servers", Some(&User::initial(false).encode()));
    assert!(!users.get(b"servers").expect("by its record").user.accepts(b"pw"));
    assert!(world.put("servers", None).get(b"servers").expect("by the settings again").user.accepts(b"pw"));
    with(None);
    assert!(world.refresh().get(b"servers").is_none());
}

#[test]
fn a_certificate_logs_in_the_user_that_it_names_if_that_user_may() {
    let world = World::new();
    let mut session = Session::new(world.clients.register(connected("1.1.1.1:1")), false);
    session.log_in_by_certificate(&world.put("a", Some(&User::all_powerful().encode())));
    assert!(!session.authenticated, "it has shown none");
    session.certificate_name = Some(b"a"[..].into());
    session.log_in_by_certificate(&world.put("a", None));
    session.log_in_by_certificate(&world.put("a", Some(&User::initial(false).encode())));
    assert!(!session.authenticated && session.login.name() == DEFAULT_USER.as_bytes());
    session.log_in_by_certificate(&world.put("a", Some(&User::all_powerful().encode())));
    assert!(session.authenticated && session.login.name() == b"a");
    assert_eq!(*session.client.user(), *b"a");
}

#[test]
fn connections_of_deleted_users_are_closed() {
    let world = World::new();
    let users = world.put("a", Some(&User::all_powerful().encode()));
    let (first, second) =
        (world.clients.register(connected("1.1.1.1:1")), world.clients.register(connected("1.1.1.1:2")));
    let mut session = Session::new(first.clone(), false);
    session.log_in(LogIn::new(users.get(b"a").expect("known"), users.generation));
    assert_eq!(*first.user(), *b"a");
    world.put("a", None);
    assert!(first.is_killed() && !second.is_killed());
    session.log_out(&world.refresh());
    assert!(session.authenticated && *first.user() == *b"default");
}

#[test]
fn the_connections_of_a_user_do_not_go_on_as_the_next_one_of_its_name() {
    let world = World::new();
    let user = |birth| User { birth, ..User::all_powerful() }.encode();
    let users = world.put("a", Some(&user(1)));
    let client = world.clients.register(connected("1.1.1.1:1"));
    let mut session = Session::new(client.clone(), false);
    session.log_in(LogIn::new(users.get(b"a").expect("known"), users.generation));
    world.put("a", Some(&User { birth: 1, ..User::initial(false) }.encode()));
    assert!(!client.is_killed(), "it is the same user, with other rules");
    world.put("a", Some(&user(2)));
    assert!(client.is_killed());
}

#[test]
fn users_have_room_up_to_a_number_of_bytes() {
    let (world, half) = (World::new(), vec![0; USERS_BYTES_MAX / 2]);
    world.put("a", Some(&half));
    world.put("b", Some(&half[..half.len() / 2]));
    let data = world.keyspace.data_settings();
    let [a, b, c] = ["a", "b", "c"].map(|name| setting_of(name.as_bytes()));
    let record = Some(&*half);
    assert!(have_room(&DataSettings::default(), [(&*a, record)]));
    assert!(!have_room(&data, [(&*c, record)]) && !have_room(&data, [(&*b, record)]), "too many bytes");
    assert!(have_room(&data, [(&*a, record)]), "the record takes the place of another one");
    assert!(have_room(&data, [(&*a, None), (&*c, record)]), "one goes, one comes");
    assert!(have_room(&data, [(&*c, None), (&*c, None)]));
}
