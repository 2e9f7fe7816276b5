"""How CPUs of another machine become sockets, dies, cores and threads of one size."""

from numalab.topology.importers.packaging import CpuPlace, pack, splits_cores
from numalab.topology.topology import CpuShape


def test_threads_that_are_far_apart_in_number_come_next_to_each_other() -> None:
    """Two packages of two cores of two threads, numbered as x86 firmware often does."""
    places = {cpu: CpuPlace(cpu // 2 % 2, cpu % 4) for cpu in range(8)}
    node_of_cpu = {cpu: places[cpu].package == 1 for cpu in range(8)}
    packed = pack({cpu: int(node) for cpu, node in node_of_cpu.items()}, places)
    assert packed.order == (0, 4, 1, 5, 2, 6, 3, 7)
    assert packed.shape == CpuShape(sockets=2, dies=1, cores=2, threads=2)
    assert (packed.llc, packed.uneven) == ("die", "")


def test_a_cache_that_some_cores_of_a_package_share_is_a_die() -> None:
    places = {cpu: CpuPlace("p", cpu, cache=cpu // 2) for cpu in range(4)}
    packed = pack(dict.fromkeys(range(4), 0), places)
    assert packed.shape == CpuShape(sockets=1, dies=2, cores=2, threads=1)
    assert packed.llc == "die"


def test_a_cache_of_each_core_alone_is_no_shared_one() -> None:
    places = {cpu: CpuPlace("p", cpu, cache=cpu) for cpu in range(4)}
    packed = pack(dict.fromkeys(range(4), 0), places)
    assert packed.shape == CpuShape(sockets=1, dies=1, cores=4, threads=1)
    assert packed.llc == "none"


def test_caches_of_single_threads_leave_the_cores_whole() -> None:
    """As QEMU's AMD models without topoext print them: each CPU has a second level of its own."""
    places = {cpu: CpuPlace("p", cpu // 2, cache=cpu) for cpu in range(4)}
    packed = pack(dict.fromkeys(range(4), 0), places)
    assert packed.shape == CpuShape(sockets=1, dies=1, cores=2, threads=2)
    assert (packed.llc, packed.uneven, splits_cores(places)) == ("none", "", True)


def test_a_core_with_a_number_of_a_cache_is_not_that_cache() -> None:
    places = {cpu: CpuPlace("p", cpu // 2, cache=cpu // 4) for cpu in range(8)}
    packed = pack(dict.fromkeys(range(8), 0), places)
    assert packed.shape == CpuShape(sockets=1, dies=2, cores=2, threads=2)
    assert not splits_cores(places)


def test_what_cannot_be_kept_is_given_up_step_by_step() -> None:
    """Caches of 3 and 1 CPUs: the sockets are kept. Sockets of 3 and 1: the nodes are."""
    caches = {cpu: CpuPlace("p", cpu, cache=cpu == 3) for cpu in range(4)}
    packed = pack(dict.fromkeys(range(4), 0), caches)
    assert packed.uneven == "the last-level caches are"
    assert packed.shape == CpuShape(sockets=1, dies=1, cores=4, threads=1)

    sockets = {cpu: CpuPlace(cpu == 3, cpu) for cpu in range(4)}
    packed = pack({0: 0, 1: 0, 2: 1, 3: 1}, sockets)
    assert packed.uneven == "the sockets are"
    assert packed.shape == CpuShape(sockets=2, dies=1, cores=2, threads=1)


def test_cores_of_a_hybrid_processor_keep_their_socket_and_cache() -> None:
    """Two cores of two threads beside four of one, with one cache: only the threads are lost."""
    core = [0, 0, 1, 1, 2, 3, 4, 5]
    places = {cpu: CpuPlace("p", core[cpu], cache="L3") for cpu in range(8)}
    packed = pack(dict.fromkeys(range(8), 0), places)
    assert packed.shape == CpuShape(sockets=1, dies=1, cores=8, threads=1)
    assert (packed.llc, packed.uneven) == ("die", "the cores are")


def test_uneven_sockets_of_uneven_cores_on_uneven_nodes_have_no_shape() -> None:
    places = {cpu: CpuPlace(cpu > 1, core="big" if cpu < 2 else cpu) for cpu in range(3)}
    packed = pack({0: 0, 1: 0, 2: 1}, places)
    assert (packed.order, packed.shape) == ((0, 1, 2), None)
    assert packed.uneven == "the sockets, the nodes and the cores are"


def test_without_places_each_node_is_a_socket() -> None:
    packed = pack({4: 0, 6: 0, 5: 1, 7: 1}, {})
    assert packed.order == (4, 6, 5, 7)
    assert packed.shape == CpuShape(sockets=2, dies=1, cores=2, threads=1)
    assert pack({0: 0, 1: 1, 2: 1}, {}).shape is None
