//! Clients that reach each other through their list.

use lsn::Lsn;

#[test]
fn another_client_can_be_reached_through_the_list() {
    let server = crate::testing::TestServer::new();
    let (first, second) = (server.session.client.id(), server.connect().client.id());
    let reach = |id, bytes: &[u8], gate| {
        server.host.clients.find(id).expect("connected").push(bytes.into(), Lsn::new(gate));
    };
    reach(second, b"+a\r\n:1\r\n", 3);
    reach(second, b"+b\r\n", 2);
    assert_eq!(server.host.take_pushed(first), (vec![], Lsn::ZERO));
    let expected = ["+a", ":1", "+b"].map(str::to_string).to_vec();
    assert_eq!(server.host.take_pushed(second), (expected, Lsn::new(3)));
}
