"""What goes wrong with nodes that lead: they go on alone, lose their tails, change soon."""

import asyncio
from contextlib import contextmanager

from ottla.ids import TopicPartition

SLOW = 300.0


class OfLeaders:
    """Faults of the nemesis that are aimed at a leader."""

    def _led(self):
        """Return a partition's leader and the other machines; any, if nobody knows of one."""
        world = self.world
        topic = self.random.choice(world.topics)
        where = TopicPartition(topic.name, self.random.randrange(topic.partition_count))
        chosen = self.random.choice(world.machines)
        for machine in world.machines:
            if machine.is_up:
                state = machine.broker.node.data.follower.image.partition(where)
                if state is not None and state.leader > 0:
                    chosen = world.machines[state.leader - 1]
                    break
        return chosen, [one for one in world.machines if one is not chosen]

    @contextmanager
    def _alone(self, machine, others):
        """Cut a node off from the others and from the store, not from clients."""
        for other in others:
            self.world.network.cut(machine.name, other.name)
            self.world.network.cut(other.name, machine.name)
        machine.link.cut()
        try:
            yield
        finally:
            machine.link.mend()
            self.world.network.mend()

    async def _isolate(self, _machine):
        with self._alone(*self._led()):
            await self._while(self.random.choice([5.0, 15.0, 30.0]))

    async def _isolate_in_turn(self, _machine):
        for _ in range(self.random.randint(2, 4)):
            with self._alone(*self._led()):
                await self.world.sleep(self.random.uniform(5.0, 14.0))
            await self.world.sleep(self.random.uniform(0.0, 2.0))

    async def _isolate_then_power(self, _machine):
        leader, others = self._led()
        with self._alone(leader, others):
            await self.world.sleep(self.random.uniform(0.5, 12.0))
            leader.trouble.pace = SLOW
            await self.world.sleep(self.random.uniform(0.1, 2.0))
            leader.kill(power=True)
            leader.trouble.pace = 1.0

    async def _unsynced(self, machines):
        """Let their syncs take long, so that others have what they may lose."""
        for machine in machines:
            machine.trouble.pace = SLOW
        await self.world.sleep(self.random.uniform(0.2, 3.0))
        for machine in machines:
            machine.kill(power=True)
            machine.trouble.pace = 1.0

    async def _power_unsynced(self, _machine):
        leader, _ = self._led()
        await self._unsynced([leader])
        await self._while(1.0)

    async def _power_all_unsynced(self, _machine):
        await self._unsynced(self.world.machines)
        await self._while(1.0)

    async def _restart_unheard(self, _machine):
        """Let a leader's next process begin before anybody hears that the last one has ended."""
        leader, others = self._led()
        for other in others:
            other.link.cut()
        leader.trouble.pace = self.random.choice([1.0, SLOW])
        try:
            await self.world.sleep(self.random.uniform(0.1, 1.5))
            leader.kill(power=self.random.random() < 0.7)
            leader.trouble.pace = 1.0
            if not leader.is_running and not leader.is_held_down:
                leader.start()
            await self.world.sleep(self.random.uniform(1.0, 7.0))
        finally:
            leader.trouble.pace = 1.0
            for other in others:
                other.link.mend()

    async def _depose(self, _machine):
        """Kill one leader after the other."""
        for _ in range(self.random.randint(2, 5)):
            self._led()[0].kill(power=self.random.random() < 0.5)
            await self._while(1.5)

    async def _elect_twice(self):
        """Kill a leader that one of its followers lags behind, and soon that one, if it leads now.

        The third node has what the second leader has not, and hears so just before it leads.
        """
        leader, others = self._led()
        behind = self.random.choice(others)
        self.world.network.cut(behind.name, leader.name)
        try:
            await self.world.sleep(self.random.uniform(0.2, 1.5))
        finally:
            self.world.network.mend()
        leader.kill(power=self.random.random() < 0.3)
        await self.world.sleep(self.random.uniform(0.1, 1.5))
        behind.kill(power=self.random.random() < 0.3)
        await self._while(6.0)

    async def _stop_in_turn(self, _machine):
        """Restart nodes one after the other, as an upgrade does."""
        for machine in self.world.machines:
            await machine.stop()
            await self._while(1.0)

    async def _cut_follower(self, _machine):
        leader, others = self._led()
        other = self.random.choice(others)
        self.world.network.cut(other.name, leader.name)
        try:
            await self._while(self.random.choice([3.0, 10.0]))
        finally:
            self.world.network.mend()

    async def _shrink_in_turn(self, _machine):
        """Let the ISR shrink to its minimum, below it, and grow by the other one first."""
        leader, others = self._led()
        first, second = self.random.sample(others, 2)
        network = self.world.network
        try:
            network.cut(first.name, leader.name)
            await self._while(4.0)
            network.cut(second.name, leader.name)
            await self._while(4.0)
        finally:
            network.mend()
        if self.random.random() < 0.5:
            leader.kill(power=True)
            await self._while(2.0)

    async def _amid_making(self, machines, *, power):
        self.making.clear()
        try:
            async with asyncio.timeout(10.0):
                await self.making.wait()
        except TimeoutError:
            return
        await self.world.sleep(self.random.uniform(0.0, 0.4))
        for machine in machines:
            machine.kill(power=power)
        await self._while(1.0)

    async def _power_amid_making(self, _machine):
        await self._amid_making(self.world.machines, power=True)

    async def _kill_amid_making(self, machine):
        await self._amid_making([machine], power=False)
