// Steps many PyBullet worlds in one call, on one or several threads, without Python's lock.
//
// A plugin of PyBullet. It gets its world through Bullet's plugin interface and calls Bullet's C
// interface, whose functions it looks up by name in the loaded pybullet, so that it needs neither
// headers nor libraries. native.py writes the program of each world, a row of numbers that says
// what to command and what to read. The commands, their order and every rounding are those of
// drives.py and sensors.py, hence the numbers too.
#include "pool.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#define API_VERSION 202010061  // Of these structures and functions.
#define MAX_DOFS 128           // Bullet's own limit.
#define PI 3.14159265358979323846

typedef void* Handle;
struct LinkState {
  double centre[3], orientation[4], inertial[7], frame[3], frame_orientation[4];
  double velocity[3], angular_velocity[3], box[6];
};
struct Contact {
  int flags, bodies[2], links[2];
  double positions[6], normal[3], distance, force, friction[2], directions[6];
};
struct Contacts {
  int n;
  struct Contact* points;
};
struct Hit {
  double fraction;
  int body, link;
  double position[3], normal[3];
};
struct Hits {
  int n;
  struct Hit* hits;
};

#define FUNCTIONS(F)                                                                              \
  F(int, b3SubmitClientCommand, (Handle, Handle))                                                 \
  F(Handle, b3ProcessServerStatus, (Handle))                                                      \
  F(Handle, b3InitStepSimulationCommand, (Handle))                                                \
  F(Handle, b3JointControlCommandInit2, (Handle, int, int))                                       \
  F(int, b3JointControlSetDesiredPosition, (Handle, int, double))                                 \
  F(int, b3JointControlSetDesiredVelocity, (Handle, int, double))                                 \
  F(int, b3JointControlSetKp, (Handle, int, double))                                              \
  F(int, b3JointControlSetKd, (Handle, int, double))                                              \
  F(int, b3JointControlSetMaximumForce, (Handle, int, double))                                    \
  F(int, b3JointControlSetMaximumVelocity, (Handle, int, double))                                 \
  F(int, b3JointControlSetDesiredForceTorque, (Handle, int, double))                              \
  F(Handle, b3RequestActualStateCommandInit, (Handle, int))                                       \
  F(int, b3RequestActualStateCommandComputeLinkVelocity, (Handle, int))                           \
  F(int, b3RequestActualStateCommandComputeForwardKinematics, (Handle, int))                      \
  F(int, b3GetStatusActualState,                                                                  \
    (Handle, int*, int*, int*, const double**, const double**, const double**, const double**))   \
  F(int, b3GetStatusActualState2,                                                                 \
    (Handle, int*, int*, int*, int*, const double**, const double**, const double**,              \
     const double**, const double**, const double**, const double**, const double**))             \
  F(int, b3GetLinkState, (Handle, Handle, int, struct LinkState*))                                \
  F(Handle, b3InitRequestContactPointInformation, (Handle))                                       \
  F(void, b3SetContactFilterBodyA, (Handle, int))                                                 \
  F(void, b3GetContactPointInformation, (Handle, struct Contacts*))                               \
  F(Handle, b3CreateRaycastBatchCommandInit, (Handle))                                            \
  F(void, b3RaycastBatchSetNumThreads, (Handle, int))                                             \
  F(void, b3RaycastBatchAddRay, (Handle, const double*, const double*))                           \
  F(void, b3GetRaycastInformation, (Handle, struct Hits*))                                        \
  F(Handle, b3CalculateInverseKinematicsCommandInit, (Handle, int))                               \
  F(void, b3CalculateInverseKinematicsSetMaxNumIterations, (Handle, int))                         \
  F(void, b3CalculateInverseKinematicsSetResidualThreshold, (Handle, double))                     \
  F(void, b3CalculateInverseKinematicsAddTargetPurePosition, (Handle, int, const double*))        \
  F(void, b3CalculateInverseKinematicsAddTargetPositionWithOrientation,                           \
    (Handle, int, const double*, const double*))                                                  \
  F(int, b3GetStatusInverseKinematicsJointPositions, (Handle, int*, int*, double*))

#define DECLARE(result, name, arguments) static result(*name) arguments;
FUNCTIONS(DECLARE)

// Look the functions up in a loaded pybullet; return the name of one it lacks, or null.
EXPORT const char* worlds_bind(const char* pybullet) {
  void* library = dlopen(pybullet, RTLD_NOW | RTLD_NOLOAD);
  if (!library) return "pybullet itself";
#define LOOK_UP(result, name, arguments) \
  if (!(*(void**)&name = dlsym(library, #name))) return #name;
  FUNCTIONS(LOOK_UP)
  return 0;
}

// What Bullet gives a plugin.
struct Context {
  Handle client;
  void* own;
};
// A world's client: null once the world is closed. Freed when no program refers to it either.
typedef struct {
  Handle handle;
  int uses;
} Client;

static Client* found;

static void release(Client* client) {
  if (--client->uses == 0) free(client);
}

EXPORT int initPlugin_worlds(struct Context* context) {
  Client* client = calloc(1, sizeof(Client));
  if (!client) return -1;
  client->handle = context->client;
  client->uses = 1;
  context->own = client;
  return API_VERSION;
}

EXPORT void exitPlugin_worlds(struct Context* context) {
  Client* client = context->own;
  client->handle = 0;
  release(client);
}

EXPORT int executePluginCommand_worlds(struct Context* context, const void* arguments) {
  (void)arguments;
  found = context->own;
  return 0;
}

typedef struct {
  Client* client;
  int length;
  double program[];
} World;

// The world in which the plugin's command was executed last; null without memory.
EXPORT World* worlds_new(const double* program, int length) {
  World* world = malloc(sizeof(World) + length * sizeof(double));
  if (!world) return 0;
  world->client = found;
  world->client->uses++;
  world->length = length;
  memcpy(world->program, program, length * sizeof(double));
  return world;
}

EXPORT void worlds_free(World* world) {
  release(world->client);
  free(world);
}

static Handle submit(Handle client, Handle command) {
  b3SubmitClientCommand(client, command);
  return b3ProcessServerStatus(client);
}

static void step(Handle client, int times) {
  while (times-- > 0) submit(client, b3InitStepSimulationCommand(client));
}

typedef struct {
  Handle status;
  const double *q, *u, *effort, *link, *link_velocity;
} State;

static int read_state(Handle client, int body, int velocity, int forward, State* state) {
  Handle command = b3RequestActualStateCommandInit(client, body);
  if (velocity) b3RequestActualStateCommandComputeLinkVelocity(command, 1);
  if (forward) b3RequestActualStateCommandComputeForwardKinematics(command, 1);
  state->status = submit(client, command);
  // The second does not look whether there is a state.
  return b3GetStatusActualState(state->status, 0, 0, 0, 0, &state->q, &state->u, 0) &&
         b3GetStatusActualState2(state->status, 0, 0, 0, 0, 0, 0, 0, 0, 0, &state->effort,
                                 &state->link, &state->link_velocity);
}

// A motor of a program: its targets lie at `column`, q and u are Bullet's own indices. The fastest
// is that of motors for positions and of a controller's torques; infinite for none.
typedef struct {
  double column, q, u, position_gain, velocity_gain, force, fastest, lower, upper;
} Motor;
enum { VELOCITY, TORQUE, POSITION };  // Bullet's own modes.

static void drive(Handle client, int mode, int body, int n, const Motor* motors,
                  const double* targets, double strength) {
  Handle command = b3JointControlCommandInit2(client, body, mode);
  for (const Motor* m = motors; m < motors + n; m++) {
    double target = targets[(int)m->column];
    target = target < m->lower ? m->lower : target > m->upper ? m->upper : target;
    if (mode == TORQUE) {
      b3JointControlSetDesiredForceTorque(command, m->u, strength * target);
      continue;
    }
    if (mode == POSITION) {
      b3JointControlSetDesiredPosition(command, m->q, target);
      b3JointControlSetKp(command, m->u, m->position_gain);
      if (m->fastest < INFINITY) b3JointControlSetMaximumVelocity(command, m->u, m->fastest);
    }
    b3JointControlSetDesiredVelocity(command, m->u, mode == POSITION ? 0.0 : target);
    b3JointControlSetKd(command, m->u, m->velocity_gain);
    b3JointControlSetMaximumForce(command, m->u, strength * m->force);
  }
  submit(client, command);
}

// PdDrive.advance.
static int regulate(Handle client, int substeps, int body, int n, const Motor* motors,
                    const double* targets, double strength) {
  double torques[MAX_DOFS];
  Motor pushes[MAX_DOFS];
  State state;
  while (substeps-- > 0) {
    if (!read_state(client, body, 0, 0, &state)) return 0;
    for (int i = 0; i < n; i++) {
      const Motor* m = motors + i;
      double error = targets[(int)m->column] - state.q[(int)m->q];
      double velocity = state.u[(int)m->u], limit = strength * m->force;
      double torque = m->position_gain * error - m->velocity_gain * velocity;
      double low = velocity <= -m->fastest ? 0.0 : -limit;
      double high = velocity >= m->fastest ? 0.0 : limit;
      torques[i] = torque < low ? low : torque > high ? high : torque;
      pushes[i] = *m;
      pushes[i].column = i;
    }
    drive(client, TORQUE, body, n, pushes, torques, 1.0);
    step(client, 1);
  }
  return 1;
}

// EndEffectorDrive.command; the columns of the motors are those of the solution.
static int reach(Handle client, int body, const double* a, const double* targets, int n,
                 const Motor* motors, double strength) {
  const double *orientation = a + 2, *low = a + 6, *high = a + 9;
  int link = a[0], n_solved;
  double goal[3], solution[MAX_DOFS];
  struct LinkState pose;
  State state;
  if (!read_state(client, body, 0, 1, &state)) return 0;
  if (!b3GetLinkState(client, state.status, link, &pose)) return 0;
  for (int i = 0; i < 3; i++) {
    double x = pose.frame[i] + targets[i];
    goal[i] = x < low[i] ? low[i] : x > high[i] ? high[i] : x;
  }
  Handle command = b3CalculateInverseKinematicsCommandInit(client, body);
  b3CalculateInverseKinematicsSetMaxNumIterations(command, 20);
  b3CalculateInverseKinematicsSetResidualThreshold(command, 1e-4);
  if (a[1])
    b3CalculateInverseKinematicsAddTargetPositionWithOrientation(command, link, goal, orientation);
  else
    b3CalculateInverseKinematicsAddTargetPurePosition(command, link, goal);
  Handle status = submit(client, command);
  if (!b3GetStatusInverseKinematicsJointPositions(status, 0, &n_solved, solution)) return 0;
  if (!n_solved) return 0;
  drive(client, POSITION, body, n, motors, solution, strength);
  return 1;
}

static double* put(double* out, const double* from, int n) {
  memcpy(out, from, n * sizeof(double));
  return out + n;
}

// Positions, orientations, velocities and angular velocities of n bodies, each side by side.
static void put_pose(double* out, int n, int i, const double* position, const double* orientation,
                     const double* velocity, const double* angular_velocity) {
  put(out + 3 * i, position, 3);
  put(out + 3 * n + 4 * i, orientation, 4);
  put(out + 7 * n + 3 * i, velocity, 3);
  put(out + 10 * n + 3 * i, angular_velocity, 3);
}

static void put_base(double* out, int n, int i, const State* state) {
  put_pose(out, n, i, state->q, state->q + 3, state->u, state->u + 3);
}

static int put_links(double* out, Handle client, const State* state, const double* a) {
  int as_left = a[0], has_base = a[1], n = a[2];
  struct LinkState pose;
  if (has_base) put_base(out, n + 1, 0, state);
  for (int i = 0; i < n; i++) {
    int link = a[3 + i];
    const double *left = state->link + 7 * link, *velocity = state->link_velocity + 6 * link;
    if (!as_left && !b3GetLinkState(client, state->status, link, &pose)) return 0;
    put_pose(out, n + has_base, i + has_base, as_left ? left : pose.frame,
             as_left ? left + 3 : pose.frame_orientation, velocity, velocity + 3);
  }
  return 1;
}

// Whether links of a body touch another body: any other, or the base of one.
static void put_contacts(double* out, Handle client, int body, int other, int n,
                         const double* links) {
  struct Contacts contacts = {0, 0};
  Handle command = b3InitRequestContactPointInformation(client);
  b3SetContactFilterBodyA(command, body);
  submit(client, command);
  b3GetContactPointInformation(client, &contacts);
  for (int i = 0; i < n; i++) out[i] = 0.0;
  for (struct Contact* c = contacts.points; c < contacts.points + contacts.n; c++) {
    int is_first = c->bodies[0] == body, link = c->links[!is_first];
    int touches = other < 0 ? c->bodies[0] != c->bodies[1]
                            : c->bodies[is_first] == other && c->links[is_first] == -1;
    for (int i = 0; i < n && touches; i++)
      if (links[i] == link) out[i] = 1.0;
  }
}

// A point of a body's frame in the world, as frames.rotate rounds it.
static void to_world(const double* pose, const double* point, double* out) {
  double x = pose[3], y = pose[4], z = pose[5], w = pose[6];
  double a = point[0], b = point[1], c = point[2];
  double p = 2.0 * (y * c - z * b), q = 2.0 * (z * a - x * c), r = 2.0 * (x * b - y * a);
  out[0] = pose[0] + (a + w * p + (y * r - z * q));
  out[1] = pose[1] + (b + w * q + (z * p - x * r));
  out[2] = pose[2] + (c + w * r + (x * q - y * p));
}

// RangeReader.read: the distance that each ray measures.
static int put_ranges(double* out, Handle client, int body, int n, double near, double length,
                      const double* ends) {
  struct Hits found = {0, 0};
  double pose[7], from[3], to[3];
  State state;
  if (!read_state(client, body, 0, 0, &state)) return 0;
  put(pose, state.q, 7);
  Handle command = b3CreateRaycastBatchCommandInit(client);
  b3RaycastBatchSetNumThreads(command, 1);
  for (int i = 0; i < n; i++, ends += 6) {
    to_world(pose, ends, from);
    to_world(pose, ends + 3, to);
    b3RaycastBatchAddRay(command, from, to);
  }
  submit(client, command);
  b3GetRaycastInformation(client, &found);
  for (int i = 0; i < n && i < found.n; i++) out[i] = near + length * found.hits[i].fraction;
  return found.n == n;
}

// The sum of numbers in the order of NumPy, whose rounding it shares.
static double sum(const double* x, int stride, int n) {
  double total = 0.0, eight[8];
  int i = 0;
  if (n >= 8) {
    for (; i < 8; i++) eight[i] = x[i * stride];
    for (; i < n - n % 8; i += 8)
      for (int j = 0; j < 8; j++) eight[j] += x[(i + j) * stride];
    total = ((eight[0] + eight[1]) + (eight[2] + eight[3])) +
            ((eight[4] + eight[5]) + (eight[6] + eight[7]));
  }
  for (; i < n; i++) total += x[i * stride];
  return total;
}

// pybullet.getEulerFromQuaternion.
static void to_euler(const double* q, double* euler) {
  double x = q[0] * q[0], y = q[1] * q[1], z = q[2] * q[2], w = q[3] * q[3];
  double sine = -2 * (q[0] * q[2] - q[3] * q[1]);
  if (sine <= -0.99999 || sine >= 0.99999) {
    int up = sine > 0 ? 1 : -1;
    euler[0] = 0;
    euler[1] = up * (0.5 * PI);
    euler[2] = 2 * atan2(-up * q[0], up * q[1]);
  } else {
    euler[0] = atan2(2 * (q[1] * q[2] + q[3] * q[0]), w - x - y + z);
    euler[1] = asin(sine);
    euler[2] = atan2(2 * (q[0] * q[1] + q[3] * q[2]), w + x - y - z);
  }
}

// What a walker of pybullet-envs-gymnasium makes of its readings. What functions of NumPy round in
// their own way is left to bullet_walkers.py, between this and walkers_finish. The places of parts are of links, of the base (-1), or
// fixed (-2).
typedef struct {
  double column, n_joints, n_links, torso, n_places;
} Walker;
enum { MOST_PLACES = 120 };  // NumPy adds more in another order.

static void note_walker(double* out, const double* read, const double* in, const Walker* w) {
  int n = w->n_joints, n_links = w->n_links, n_places = w->n_places, torso = w->torso;
  const double *lower = (const double*)(w + 1), *range = lower + n, *place = range + n;
  const double *base = read + 2 * n, *links = base + 13;
  const double *xyz = base, *turn = base + 3, *speed = base + 7, *start = in + (int)w->column;
  double places[2 * MOST_PLACES], *more = out + 8 + 2 * n;
  int at_limit = 0;
  if (torso >= 0) {
    xyz = links + 3 * torso;
    turn = links + 3 * n_links + 4 * torso;
    speed = links + 7 * n_links + 3 * torso;
  }
  for (int i = 0; i < n_places; i++, place += 3) {
    const double* at = place[0] >= 0 ? links + 3 * (int)place[0] : place[0] == -1 ? base : place + 1;
    places[2 * i] = at[0];
    places[2 * i + 1] = at[1];
  }
  for (int i = 0; i < n; i++) {
    float position = 2 * (read[i] - lower[i]) / range[i] - 1.0;
    out[8 + 2 * i] = position;
    out[9 + 2 * i] = (float)(0.1 * read[n + i]);
    at_limit += fabsf(position) > 0.99f;
  }
  more[0] = sum(places, 2, n_places) / n_places;
  more[1] = sum(places + 1, 2, n_places) / n_places;
  more[2] = xyz[2];
  more[3] = start[1] - more[1];
  more[4] = start[0] - more[0];
  to_euler(turn, out + 5);
  more[5] = out[7];
  memcpy(more + 6, speed, 3 * sizeof(double));
  more[9] = at_limit;
  out[7] = out[6];
  out[6] = out[5];
  out[0] = xyz[2] - start[2];
}

enum { MOTORS, REGULATE, REACH, STEP, READ, LINKS, CONTACTS, BODIES, SKIP, WALKER, RANGES };

// Carry out a world's program: parts of (kind, length of the rest, rest).
static int run(const World* world, const double* in, double* out) {
  Handle client = world->client->handle;
  if (!client) return 0;
  State state;
  double* row = out;
  const double* end = world->program + world->length;
  for (const double* part = world->program; part < end; part += 2 + (int)part[1]) {
    const double* a = part + 2;
    int body = a[0], n;
    switch ((int)part[0]) {
      case MOTORS:  // body, mode, column of the strength, n, motors
        drive(client, a[1], body, a[3], (const Motor*)(a + 4), in, in[(int)a[2]]);
        break;
      case REGULATE:  // body, substeps, column of the strength, n, motors
        if (!regulate(client, a[1], body, a[3], (const Motor*)(a + 4), in, in[(int)a[2]])) return 0;
        break;
      case REACH:  // body, column, column of the strength, n, link and goal, motors
        if (!reach(client, body, a + 4, in + (int)a[1], a[3], (const Motor*)(a + 16),
                   in[(int)a[2]]))
          return 0;
        break;
      case STEP:  // times
        step(client, a[0]);
        break;
      case READ:  // body, link velocities, forward kinematics, efforts, base, n, q, u, links
        n = a[5];
        if (!read_state(client, body, a[1], a[2], &state)) return 0;
        for (int i = 0; i < n; i++) *out++ = state.q[(int)a[6 + i]];
        for (int i = 0; i < n; i++) *out++ = state.u[(int)a[6 + n + i]];
        for (int i = 0; i < n && a[3]; i++) *out++ = state.effort[(int)a[6 + 2 * n + i]];
        if (a[4]) put_base(out, 1, 0, &state), out += 13;
        break;
      case LINKS:  // as left, whether the base is among them, n, links; of the body read last
        if (!put_links(out, client, &state, a)) return 0;
        out += 13 * (int)(a[1] + a[2]);
        break;
      case CONTACTS:  // body, other body or -1, n, links
        put_contacts(out, client, body, a[1], a[2], a + 3);
        out += (int)a[2];
        break;
      case BODIES:  // n, bodies
        n = a[0];
        for (int i = 0; i < n; i++) {
          if (!read_state(client, a[1 + i], 0, 0, &state)) return 0;
          put_base(out, n, i, &state);
        }
        out += 13 * n;
        break;
      case SKIP:  // numbers to be written later
        out += (int)a[0];
        break;
      case WALKER:  // struct Walker, limits of joints, places
        note_walker(row, row + 18 + 2 * (int)a[1], in, (const Walker*)a);
        break;
      case RANGES:  // body, n, start and length of a ray, first and last points
        if (!put_ranges(out, client, body, a[1], a[2], a[3], a + 4)) return 0;
        out += (int)a[1];
        break;
      default:
        return 0;
    }
  }
  return 1;
}

// Of n walkers: sizes, what they cost and earn, what NumPy computed, and what is to be filled in.
typedef struct {
  int n, n_joints, n_feet, width, kind;
  double dt, height, bonus;
  double *rows, *start_z, *costs, *means, *sines, *cosines, *ahead, *distance, *potential, *terms;
  float *feet, *observation;
  char* ended;
} Walkers;
enum { UPRIGHT, ON_FEET, ABOVE };

static double is_alive(const Walkers* w, double z, double pitch, const float* feet) {
  if (w->kind == ABOVE) return z > w->height ? w->bonus : -1;
  int is_up = w->kind == ON_FEET ? !feet[1] && !feet[2] && !feet[4] && !feet[5] : z > w->height;
  return is_up && fabs(pitch) < 1.0 ? w->bonus : -1;
}

// The observations and the terms of the rewards of n walkers; feet and potentials for the next.
EXPORT void walkers_finish(const Walkers* w) {
  int n = w->n, n_seen = 8 + 2 * w->n_joints;
  for (int i = 0; i < n; i++) {
    double *row = w->rows + (long)i * w->width, *terms = w->terms + 5 * i, potential;
    float *seen = w->observation + (long)i * (n_seen + w->n_feet), *feet = w->feet + i * w->n_feet;
    int is_finite = 1;
    row[1] = w->sines[i];
    row[2] = w->cosines[i];
    for (int j = 0; j < 3; j++) row[3 + j] = 0.3 * w->ahead[3 * i + j];
    for (int j = 0; j < n_seen + w->n_feet; j++) {
      float x = j < n_seen ? (float)row[j] : feet[j - n_seen];
      seen[j] = x < -5 ? -5 : x > 5 ? 5 : x;
      is_finite &= !isnan(x);
    }
    potential = -w->distance[i] / w->dt;
    terms[0] = is_alive(w, seen[0] + w->start_z[i], row[7], feet);
    terms[1] = potential - w->potential[i];
    terms[2] = w->costs[i] * w->means[i] + w->costs[n + i] * w->means[n + i];
    terms[3] = w->costs[2 * n + i] * row[n_seen + 9];
    terms[4] = 0.0;
    w->potential[i] = potential;
    w->ended[i] = !is_finite || (w->kind != ON_FEET && terms[0] < 0);
    for (int j = 0; j < w->n_feet; j++) feet[j] = row[w->width - w->n_feet + j];
  }
}

typedef struct {
  World** worlds;
  const double* in;
  int width_in;
  double* out;
  int width_out;
} Rows;

static int run_row(void* all, int i) {
  const Rows* rows = all;
  return run(rows->worlds[i], rows->in + i * rows->width_in, rows->out + i * rows->width_out);
}

// Step n worlds: one row in and one row out for each. Return 0, or the number of one that failed,
// from 1. With several threads, the helpers of this process share the work if they are free.
EXPORT int worlds_step(World** worlds, int n, const double* in, int width_in, double* out,
                       int width_out, int threads) {
  Rows rows = {worlds, in, width_in, out, width_out};
  return work_on(run_row, &rows, n, threads);
}

// Give the pages between two addresses that hold only zeros back to the system, in which they are
// zeros when they are next read. Nothing may write there meanwhile. Return how many there were.
EXPORT long give_back_zeros(char* from, char* to) {
  enum { MOST = 64 };  // Pages at once: little time between looking at one and giving it back.
  long size = sysconf(_SC_PAGESIZE), given = 0, count = 0;
  for (char* page = from; page <= to - size || count; page += size) {
    int is_empty = page <= to - size && count < MOST;
    for (long k = 0; is_empty && k < size / 8; k += 8) {
      const unsigned long long* x = (unsigned long long*)page + k;
      is_empty = !(x[0] | x[1] | x[2] | x[3] | x[4] | x[5] | x[6] | x[7]);
    }
    if (is_empty) {
      count++;
      continue;
    }
    if (count && !madvise(page - count * size, count * size, MADV_DONTNEED)) given += count;
    if (count == MOST) page -= size;  // It has not been looked at.
    count = 0;
  }
  return given;
}
