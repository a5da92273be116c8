"""A stand-in for a player of Unity, with the real messages of mlagents_envs over real gRPC.

Use: `python unity_player.py --mlagents-port 5005 [--count 3] [...]`, in an interpreter with
mlagents_envs. Like a player it is the client, of the service that UnityEnvironment opens. It runs
`unity_cart`, with the actions and observations that its options name.
"""

import argparse
import os
import random
import struct
import sys
import time

import grpc
from mlagents_envs.communicator_objects import (
    agent_info_pb2,
    brain_parameters_pb2,
    observation_pb2,
    unity_message_pb2,
    unity_output_pb2,
    unity_rl_initialization_output_pb2,
    unity_rl_output_pb2,
    unity_to_external_pb2_grpc,
)
from unity_cart import Carts

RESET, QUIT = 1, 400
PARAMETERS = bytes.fromhex("1e894c530f81ea11a9d0822485860400")


def parsed():
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--mlagents-port", type=int, required=True)
    add("--count", type=int, default=3)
    add("--length", type=int, default=12)
    add("--gap", type=int, default=0)
    add("--slow", type=int, default=0)
    add("--actions", default="continuous", choices=["continuous", "branch", "branches", "hybrid"])
    add("--sees", default="vector", choices=["vector", "camera", "both"])
    add("--behaviors", default="Cart?team=0")
    add("--fails-at", type=int, default=-1)
    add("--hangs-at", type=int, default=-1)
    add("--forgets-seed", action="store_true")
    return parser.parse_known_args()[0]


def spec_of(kind):
    proto = brain_parameters_pb2.ActionSpecProto
    sizes = {"branch": [3], "branches": [3, 2], "hybrid": [2]}.get(kind, [])
    spec = proto(num_discrete_actions=len(sizes), discrete_branch_sizes=sizes)
    spec.num_continuous_actions = int(kind in ("continuous", "hybrid"))
    return spec


def observations_of(cart, sees):
    proto = observation_pb2.ObservationProto
    found = []
    if sees != "camera":
        # Two sensors, as a vector and rays are.
        for name, values in (("Place", cart.see()[:1]), ("Speed", cart.see()[1:])):
            data = proto.FloatData(data=values)
            found.append(proto(name=name, shape=[1], float_data=data))
    if sees != "vector":
        light = max(0.0, min(1.0, 0.5 + cart.place / 6))
        data = proto.FloatData(data=[light] * 48)
        found.append(proto(name="Camera 1", shape=[3, 4, 4], float_data=data))
    return found


def parameters_in(message):
    """Return the floats of the EnvironmentParameters side channel, by name."""
    found = {}
    while message:
        (length,) = struct.unpack_from("<i", message, 16)
        body = message[20 : 20 + length]
        if message[:16] == PARAMETERS:
            (n,) = struct.unpack_from("<i", body)
            found[body[4 : 4 + n].decode()] = struct.unpack_from("<f", body, 8 + n)[0]
        message = message[20 + length :]
    return found


class Player:
    def __init__(self, options):
        self.options, self.names = options, options.behaviors.split(",")
        channel = grpc.insecure_channel(f"127.0.0.1:{options.mlagents_port}")
        grpc.channel_ready_future(channel).result(timeout=20)
        self.python = unity_to_external_pb2_grpc.UnityToExternalProtoStub(channel)
        self.exchanges = 0

    def infos(self, name):
        proto = agent_info_pb2.AgentInfoProto
        of_this = self.carts if name == self.names[0] else Carts(1)
        asking = of_this.asking() if self.names else []
        masks = {"branch": [False, False, True], "branches": [False] * 4 + [True]}
        found = []
        for cart in [*of_this.ended, *asking]:
            is_done = cart in of_this.ended
            info = proto(id=cart.agent, reward=cart.reward, done=is_done, max_step_reached=cart.cut)
            info.observations.extend(observations_of(cart, self.options.sees))
            info.action_mask.extend(masks.get(self.options.actions, []))
            found.append(info)
        return found

    def output(self):
        output = unity_rl_output_pb2.UnityRLOutputProto()
        for name in self.names:
            output.agentInfos[name].value.extend(self.infos(name))
        return output

    def exchange(self, output):
        message = unity_message_pb2.UnityMessageProto(unity_output=output)
        message.header.status = 200
        return self.python.Exchange(message)

    def run(self):
        proto = unity_rl_initialization_output_pb2.UnityRLInitializationOutputProto
        first = proto(name="Carts", communication_version="1.5.0", package_version="stand-in")
        first.capabilities.baseRLCapabilities = True
        output = unity_output_pb2.UnityOutputProto(rl_initialization_output=first)
        seed = self.exchange(output).unity_input.rl_initialization_input.seed
        if self.options.forgets_seed:
            seed = random.SystemRandom().randrange(2**31)
        o = self.options
        self.carts = Carts(o.count, seed, o.length, o.gap, o.slow)
        print("the stand-in has begun", flush=True)
        asked, is_first = self.exchange(None), True
        while asked.header.status != QUIT:
            output = self.answer(asked.unity_input.rl_input)
            if is_first:
                # What behaviors there are comes with their first agents.
                output.rl_initialization_output.CopyFrom(first)
                for name in self.names:
                    output.rl_initialization_output.brain_parameters.add(
                        brain_name=name, is_training=True, action_spec=spec_of(o.actions)
                    )
            asked, is_first = self.exchange(output), False

    def answer(self, asked):
        for name, value in sorted(parameters_in(asked.side_channel).items()):
            print("parameter", name, value, flush=True)
        if asked.command == RESET:
            self.carts.reset()
        else:
            self.exchanges += 1
            given = asked.agent_actions[self.names[0]].value
            kind = self.options.actions
            acts = [list(g.continuous_actions or g.discrete_actions) for g in given]
            for chosen in acts if kind == "branch" else []:
                assert chosen[0] != 2, "an action that is masked"
            self.carts.act([a[0] if kind == "continuous" else a[0] - 1 for a in acts])
        if self.exchanges == self.options.fails_at:
            print("NullReferenceException: Cart.OnActionReceived", flush=True)
            sys.exit(7)
        if self.exchanges == self.options.hangs_at:
            time.sleep(600)
        return unity_output_pb2.UnityOutputProto(rl_output=self.output())


if __name__ == "__main__":
    try:
        Player(parsed()).run()
    except grpc.RpcError:
        # As a player does when Python has gone.
        os._exit(0)
