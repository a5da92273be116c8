"""A stand-in for rosbridge and a robot: joint states of two joints, which go where they are told.

As a program it is a websocket server that speaks as much of rosbridge's protocol, with what
roslibpy brings along. `Ros`, `Topic` and `Message` are those of roslibpy without a network.
"""

import json
import sys
from threading import Lock

NAMES = ["knee", "passive", "hip"]


class Robot:
    """Where the joints are, and all that was published."""

    def __init__(self):
        self.position, self.published = {"knee": -1.0, "passive": 9.0, "hip": 0.25}, []

    def state(self):
        nothing = [0.0] * len(NAMES)
        position = [self.position[name] for name in NAMES]
        return {
            "header": {},
            "name": NAMES,
            "position": position,
            "velocity": nothing,
            "effort": [],
        }

    def take(self, topic, message):
        self.published.append((topic, message))
        if "points" in message:
            row = zip(message["joint_names"], message["points"][0]["positions"], strict=True)
        else:
            row = zip(("hip", "knee"), message["data"], strict=True)
        self.position.update(row)


class Ros:
    """roslibpy's client, without a network."""

    robot, is_there, topics = Robot(), True, ("/joint_states",)

    def __init__(self, host, port):
        self.is_connected = False

    def run(self, timeout):
        if not self.is_there:
            raise TimeoutError("Failed to connect to ROS")
        self.is_connected = True

    def close(self):
        self.is_connected = False


class Topic:
    """roslibpy's topic; a subscriber hears of the robot at once and after each command."""

    callbacks, lock = [], Lock()

    def __init__(self, ros, name, message_type, queue_length=100):
        self.ros, self.name, self.message_type = ros, name, message_type

    def subscribe(self, callback):
        if self.name in Ros.topics:
            self.callbacks.append(callback)
            callback(Ros.robot.state())

    def advertise(self):
        pass

    def publish(self, message):
        Ros.robot.take(self.name, message)
        for callback in self.callbacks:
            callback(Ros.robot.state())

    def unsubscribe(self):
        self.callbacks.clear()

    def unadvertise(self):
        pass


Message = dict


def serve():
    """Serve a robot at a free port, which is printed."""
    from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
    from twisted.internet import reactor, task

    robot = Robot()

    class Protocol(WebSocketServerProtocol):
        def onMessage(self, payload, isBinary):  # noqa: N802, N803
            request = json.loads(payload)
            if request["op"] == "subscribe" and request["topic"] in Ros.topics:
                self.topic = request["topic"]
                self.loop = task.LoopingCall(self.tell)
                self.loop.start(0.01)
            elif request["op"] == "publish":
                robot.take(request["topic"], request["msg"])

        def onClose(self, *_):  # noqa: N802
            if hasattr(self, "loop") and self.loop.running:
                self.loop.stop()

        def tell(self):
            message = {"op": "publish", "topic": self.topic, "msg": robot.state()}
            self.sendMessage(json.dumps(message).encode())

    factory = WebSocketServerFactory()
    factory.protocol = Protocol
    port = reactor.listenTCP(0, factory, interface="127.0.0.1")
    print(port.getHost().port, flush=True)
    reactor.run()


if __name__ == "__main__":
    sys.exit(serve())
