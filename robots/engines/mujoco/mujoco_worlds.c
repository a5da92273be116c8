// Steps and reads many MuJoCo worlds in one call, on one or several threads, without Python's lock.
//
// motors.py and simulation.py have the same in Python: the operations, their order and their
// rounding are the same, hence the numbers too. It is compiled with MuJoCo's own headers and calls
// the library that the package mujoco has loaded.
#include "pool.h"

#include <dlfcn.h>
#include <math.h>
#include <mujoco/mujoco.h>
#include <string.h>

// The last argument of mj_ray is new; earlier versions do not look at it.
#define FUNCTIONS(F)                                                                          \
  F(void, mj_step1, (const mjModel*, mjData*))                                                \
  F(void, mj_step2, (const mjModel*, mjData*))                                                \
  F(void, mj_kinematics, (const mjModel*, mjData*))                                           \
  F(void, mj_comPos, (const mjModel*, mjData*))                                               \
  F(void, mj_jacBody, (const mjModel*, const mjData*, double*, double*, int))                 \
  F(int, mju_cholFactor, (double*, int, double))                                              \
  F(void, mju_cholSolve, (double*, const double*, const double*, int))                        \
  F(void, mju_negQuat, (double*, const double*))                                              \
  F(void, mju_mulQuat, (double*, const double*, const double*))                               \
  F(void, mju_quat2Vel, (double*, const double*, double))                                     \
  F(double, mj_ray,                                                                           \
    (const mjModel*, const mjData*, const double*, const double*, const mjtByte*, _Bool, int, \
     int*, double*))

#define DECLARE(result, name, arguments) static result(*call_##name) arguments;
FUNCTIONS(DECLARE)

// Look the functions up in a loaded library; return the name of one it lacks, or null.
EXPORT const char* worlds_bind(const char* path, int version) {
  void* library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (!library) return "libmujoco itself";
  if (version != mjVERSION_HEADER) return "header of the same version";
#define LOOK_UP(result, name, arguments) \
  if (!(*(void**)&call_##name = dlsym(library, #name))) return #name;
  FUNCTIONS(LOOK_UP)
  return 0;
}

// A world and its motors: class Motors. The program says what to read, in parts: the kind, how many
// numbers follow, and these.
typedef struct {
  const mjModel* model;
  mjData* data;
  int substeps, n, first_row, length;
  double per_s;
  const int *dofs, *positions;
  const double *gain, *kept, *slowest, *fastest, *goal, *speed;
  double* efforts;
  const double* program;
  double* row;
} World;
enum { MOST_JOINTS = 128 };
enum { JOINTS, POSES, CONTACTS, RANGES };

static void substep(const World* w) {
  mjData* d = w->data;
  for (int i = 0; i < w->n; i++) {
    double present = d->qvel[w->dofs[i]];
    double wanted = w->gain[i] * (w->goal[i] - d->qpos[w->positions[i]]);
    wanted += w->kept[i] * present;
    wanted += w->speed[i];
    wanted = wanted < w->slowest[i] ? w->slowest[i] : wanted;
    wanted = wanted > w->fastest[i] ? w->fastest[i] : wanted;
    wanted -= present;
    d->efc_aref[w->first_row + i] = wanted * w->per_s;
  }
  call_mj_step2(w->model, d);
  for (int i = 0; i < w->n; i++) w->efforts[i] = d->efc_force[w->first_row + i];
  call_mj_step1(w->model, d);
}

// Positions, velocities and efforts of n joints; the column of a motor, or -1.
static double* put_joints(double* out, const World* w, const double* a) {
  int n = a[0], efforts = a[1];
  const double *q = a + 2, *v = q + n, *columns = v + n;
  for (int i = 0; i < n; i++) *out++ = w->data->qpos[(int)q[i]];
  for (int i = 0; i < n; i++) *out++ = w->data->qvel[(int)v[i]];
  for (int i = 0; i < n && efforts; i++)
    *out++ = columns[i] < 0 ? 0.0 : w->efforts[(int)columns[i]];
  return out;
}

// Positions, orientations, velocities and angular velocities of n bodies, each side by side; of a
// body the place of its centre of mass, or of its frame.
static double* put_poses(double* out, const World* w, const double* a) {
  const mjModel* m = w->model;
  const mjData* d = w->data;
  int n = a[0];
  for (int i = 0; i < n; i++) {
    int body = a[1 + 2 * i], centre = a[2 + 2 * i];
    const double *quat = d->xquat + 4 * body, *moving = d->cvel + 6 * body;
    const double *middle = d->subtree_com + 3 * m->body_rootid[body], *com = d->xipos + 3 * body;
    double x = com[0] - middle[0], y = com[1] - middle[1], z = com[2] - middle[2];
    double *velocity = out + 7 * n + 3 * i, *turn = out + 3 * n + 4 * i;
    memcpy(out + 3 * i, (centre ? d->xipos : d->xpos) + 3 * body, 3 * sizeof(double));
    turn[0] = quat[1], turn[1] = quat[2], turn[2] = quat[3], turn[3] = quat[0];
    velocity[0] = moving[3] + (moving[1] * z - moving[2] * y);
    velocity[1] = moving[4] + (moving[2] * x - moving[0] * z);
    velocity[2] = moving[5] + (moving[0] * y - moving[1] * x);
    memcpy(out + 10 * n + 3 * i, moving, 3 * sizeof(double));
  }
  return out + 13 * n;
}

// Whether each of n links touches another body. Of every geom, whose it is and its link's column.
static double* put_contacts(double* out, const World* w, const double* a) {
  int n = a[0];
  const double *owner = a + 1, *column = owner + w->model->ngeom;
  for (int i = 0; i < n; i++) out[i] = 0.0;
  for (const mjContact* c = w->data->contact; c < w->data->contact + w->data->ncon; c++) {
    int first = c->geom[0], second = c->geom[1];
    if (c->dist > 0.0 || owner[first] == owner[second]) continue;
    if (column[first] >= 0) out[(int)column[first]] = 1.0;
    if (column[second] >= 0) out[(int)column[second]] = 1.0;
  }
  return out + n;
}

// A point of a body's frame in the world, as frames.rotate rounds it.
static void to_world(const double* origin, const double* quat, const double* point, double* out) {
  double x = quat[1], y = quat[2], z = quat[3], w = quat[0];
  double a = point[0], b = point[1], c = point[2];
  double p = 2.0 * (y * c - z * b), q = 2.0 * (z * a - x * c), r = 2.0 * (x * b - y * a);
  out[0] = origin[0] + (a + w * p + (y * r - z * q));
  out[1] = origin[1] + (b + w * q + (z * p - x * r));
  out[2] = origin[2] + (c + w * r + (x * q - y * p));
}

// RangeReader.read: the distance that each ray measures.
static double* put_ranges(double* out, const World* w, const double* a) {
  int body = a[0], n = a[1], groups = a[2], met[1];
  double near = a[3], length = a[4], from[3], way[3];
  const double *ends = a + 5, *origin = w->data->xipos + 3 * body;
  const double* quat = w->data->xquat + 4 * body;
  mjtByte group[mjNGROUP];
  for (int i = 0; i < mjNGROUP; i++) group[i] = groups >> i & 1;
  for (int i = 0; i < n; i++, ends += 6) {
    to_world(origin, quat, ends, from);
    to_world(origin, quat, ends + 3, way);
    for (int k = 0; k < 3; k++) way[k] -= from[k];
    double share = call_mj_ray(w->model, w->data, from, way, group, 1, -1, met, 0);
    *out++ = near + length * (share >= 0.0 && share <= 1.0 ? share : 1.0);
  }
  return out;
}

static int run(void* all, int i) {
  const World* w = ((const World**)all)[i];
  double* out = w->row;
  for (int k = 0; k < w->substeps; k++) substep(w);
  for (const double* part = w->program; part < w->program + w->length; part += 2 + (int)part[1])
    switch ((int)part[0]) {
      case JOINTS: out = put_joints(out, w, part + 2); break;
      case POSES: out = put_poses(out, w, part + 2); break;
      case CONTACTS: out = put_contacts(out, w, part + 2); break;
      case RANGES: out = put_ranges(out, w, part + 2); break;
    }
  return 1;
}

// LinkSolver._solve, whose constants these are. The goal is a position and a quaternion; the work
// space holds six rows of the Jacobian.
EXPORT void worlds_reach(const mjModel* m, mjData* d, int body, int n, const int* positions,
                         const int* dofs, const double* goal, double* jacobian, double* solution,
                         int rows) {
  const double near = 1e-4, damping = 0.02, most = 0.3;
  double error[6], back[4], change[4], square[36], weights[6], steps[MOST_JOINTS];
  for (int iteration = 0; iteration < 20; iteration++) {
    double worst = 0.0, greatest = 0.0;
    call_mj_kinematics(m, d);
    for (int i = 0; i < 3; i++) error[i] = goal[i] - d->xpos[3 * body + i];
    if (rows == 6) {
      call_mju_negQuat(back, d->xquat + 4 * body);
      call_mju_mulQuat(change, goal + 3, back);
      call_mju_quat2Vel(error + 3, change, 1.0);
    }
    for (int i = 0; i < rows; i++) worst = fabs(error[i]) > worst ? fabs(error[i]) : worst;
    if (worst < near) break;
    call_mj_comPos(m, d);
    call_mj_jacBody(m, d, jacobian, jacobian + 3 * m->nv, body);
    for (int i = 0; i < rows; i++)
      for (int k = 0; k < rows; k++) {
        double total = i == k ? damping * damping : 0.0;
        for (int j = 0; j < n; j++)
          total += jacobian[i * m->nv + dofs[j]] * jacobian[k * m->nv + dofs[j]];
        square[i * rows + k] = total;
      }
    call_mju_cholFactor(square, rows, 0.0);
    call_mju_cholSolve(weights, square, error, rows);
    for (int j = 0; j < n; j++) steps[j] = 0.0;
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < n; j++) steps[j] += jacobian[i * m->nv + dofs[j]] * weights[i];
    for (int j = 0; j < n; j++) greatest = fabs(steps[j]) > greatest ? fabs(steps[j]) : greatest;
    double share = greatest > most ? most / greatest : 1.0;
    for (int j = 0; j < n; j++) d->qpos[positions[j]] += steps[j] * share;
  }
  for (int j = 0; j < n; j++) solution[j] = d->qpos[positions[j]];
}

// Step n worlds, and read them.
EXPORT void worlds_step(World** worlds, int n, int threads) { work_on(run, worlds, n, threads); }
