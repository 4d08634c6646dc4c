"""Whether the server that reports is still the one to which clients write: answers of Sentinels, and of a cluster."""

from types import SimpleNamespace

import pytest
import redis
from redis.exceptions import ClusterError

from wheelcache.near_cache import cluster_tracking
from wheelcache.near_cache.cluster_tracking import Masters, Topology
from wheelcache.near_cache.sentinels import NotConfirmed, Sentinels, sentinels_of

MASTER = SimpleNamespace(host="one", port=1)
OURS, OTHER, UNKNOWN = [b"one", b"1"], [b"two", b"1"], None
QUESTION = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "service")
SILENT, DOWN, FAILING = "silent", "down", redis.ConnectionError("gone")


class Connection:
    """A connection to a server that has the answers."""

    host, port, _sock = "one", 1, None

    def __init__(self, *answers):
        self.answers = list(answers)
        self.sent = []

    def connect(self):
        if self.answers == [DOWN]:
            raise redis.ConnectionError("down")

    def send_command(self, *words):
        self.sent.append(words)

    def can_read(self, seconds):
        assert seconds == 0
        return bool(self.answers) and self.answers[0] != SILENT

    def read_response(self):
        if isinstance(answer := self.answers.pop(0), Exception):
            raise answer
        return answer

    def disconnect(self):
        self.sent.append("disconnected")


def asked(*answers, fixed_host=None):
    """Return the question to Sentinels with these answers, which is asked, and their connections."""
    connections = [Connection(answer) for answer in answers]
    sentinels = Sentinels([lambda timeout, each=each: each for each in connections], "service", fixed_host)
    sentinels.connect(MASTER, 1.0)
    sentinels.ask()
    return sentinels, connections


OUTCOMES = {
    True: [(OURS, SILENT), (OURS, DOWN), (UNKNOWN, OURS), (FAILING, OURS), (OURS, OURS)],
    False: [(SILENT, SILENT), (UNKNOWN, SILENT), (UNKNOWN, UNKNOWN), (DOWN, SILENT)],
    NotConfirmed: [(OURS, OTHER), (OTHER, SILENT), (DOWN, DOWN), (FAILING, DOWN)],
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_majority_of_sentinels_confirms_the_master_unless_one_names_another_server(outcome):
    for others in OUTCOMES[outcome]:
        sentinels, connections = asked(OURS, *others)
        if outcome is NotConfirmed:
            with pytest.raises(NotConfirmed):
                sentinels.is_confirmed()
        else:
            assert sentinels.is_confirmed() is outcome
        sentinels.disconnect()
        assert all("disconnected" in each.sent for each in connections)


def test_an_answer_to_an_earlier_question_confirms_nothing():
    sentinels, connections = asked(OURS, SILENT, SILENT)
    sentinels.is_confirmed()
    sentinels.ask()
    assert [each.sent for each in connections] == [[QUESTION] * 2, [QUESTION], [QUESTION]]
    for each in connections:
        each.answers = [OURS]
    assert not sentinels.is_confirmed()
    sentinels.ask()
    for each in connections[1:]:
        each.answers = [OURS]
    assert sentinels.is_confirmed()


def test_a_fixed_host_replaces_the_host_that_sentinels_name():
    assert asked([b"inside", b"1"], [b"inside", b"1"], fixed_host="one")[0].is_confirmed()


def test_a_client_of_one_server_has_no_sentinels():
    assert sentinels_of(redis.Redis()) is None


# A cluster of two masters.

OK = ("ok", 7, ["a", "b"])


def answers(state, epoch, masters):
    slots = [[0, 1, [b"host", 1, each.encode(), []], [b"host", 2, b"replica", []]] for each in masters]
    return [f"cluster_state:{state}\r\ncluster_current_epoch:{epoch}\r\n".encode(), slots]


@pytest.fixture
def cluster(monkeypatch):
    """A question to the masters "a" and "b" that is connected, and the connections for their answers."""
    made = []

    def connect_like(node):
        def connect(timeout):
            made.append(Connection(node.encode()))
            return made[-1]

        return connect

    monkeypatch.setattr(cluster_tracking, "connect_like", connect_like)
    client = SimpleNamespace(
        nodes_manager=SimpleNamespace(initialize=lambda: made.append("initialized")),
        get_primaries=lambda: ["a", "b"],
        get_redis_connection=lambda node: node,
    )
    topology = Topology(lambda: client)
    masters = topology.masters(1.0)
    masters.connect()
    topology.connect(masters, 1.0)
    assert made.pop(0) == "initialized"
    return topology, masters, made[1::2]


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [
        ((OK, OK), (OK, OK), True),
        ((OK, OK), (OK, None), False),
        ((OK, OK), (OK, ("ok", 8, ["a", "b"])), "changed"),
        ((OK, OK), (("ok", 6, ["a", "b"]),) * 2, "changed"),
        ((OK, OK), (("fail", 7, ["a", "b"]), OK), "state is 'fail'"),
        ((OK, OK), (OK, ("ok", 7, ["a", "b", "c"])), "other masters"),
        ((OK, ("ok", 7, ["a"])), (), "other masters"),
    ],
)
def test_a_cluster_is_confirmed_as_long_as_all_its_masters_have_the_same_view(cluster, first, second, outcome):
    topology, _, connections = cluster

    def confirm(views):
        topology.ask()
        for connection, view in zip(connections, views, strict=True):
            connection.answers = answers(*view) if view else []
        return topology.is_confirmed()

    if isinstance(outcome, str):
        with pytest.raises(ClusterError, match=outcome):
            [confirm(views) for views in (first, second)]
    else:
        assert [confirm(views) for views in (first, second)] == [True, outcome]
    assert connections[0].sent[:3] == [("CLUSTER", "MYID"), ("CLUSTER", "INFO"), ("CLUSTER", "SLOTS")]


def test_a_cluster_that_cannot_be_reached_is_an_error_of_redis():
    with pytest.raises(ClusterError, match="cannot be connected"):
        Masters(lambda: redis.RedisCluster("127.0.0.1", 1), 1.0).connect()


def test_a_cluster_that_is_connected_again_may_have_another_epoch(cluster):
    topology, masters, connections = cluster
    for epoch in (7, 8):
        topology.connect(masters, 1.0)
        topology.ask()
        for connection in connections:
            connection.answers = answers("ok", epoch, ["a", "b"])
        assert topology.is_confirmed()


def test_messages_of_all_masters_arrive_and_a_ping_is_answered_when_all_have_answered(cluster):
    _, masters, _ = cluster
    pong, write, late = [b"pong", b"1"], [b"message", b"c", [b"k"]], [b"message", b"c", [b"l"]]
    for master, messages in zip(masters.each, ([pong, write], [late]), strict=True):
        master.messages.answers = messages
    assert masters.can_read(0)
    assert [masters.read_response(), masters.can_read(0) and masters.read_response()] == [write, late]
    assert not masters.can_read(0)
    masters.each[1].messages.answers = [pong]
    assert masters.can_read(0)
    assert masters.read_response() == pong
    masters.send_command("CLIENT", "REDIRECT", [1, 2])
    assert [each.messages.sent for each in masters.each] == [[("CLIENT", "REDIRECT", 1)], [("CLIENT", "REDIRECT", 2)]]
    masters.disconnect()
    assert all(each.answers.sent[-1] == each.messages.sent[-1] == "disconnected" for each in masters.each)
