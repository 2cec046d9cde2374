// Vectors of integers in all kinds of expressions, without spaces.
#include <metal_stdlib>
using namespace metal;

constant int4 pace = int4(1,2,3,4);
struct rows { int4 a[2]; uint2 n; };
static int4 twice(int4 v) { return v+v; }
kernel void integers_in_vectors(device const int4 *x, device int4 *y, uint i [[thread_position_in_grid]]) {
    int4 v=x[i],w=pace*2;
    rows r;
    r.a[0]=v-w;
    r.a[1]=-w;
    r.n=uint2(i,1)<<2u;
    uint4 u=uint4(v)*2654435761u;
    u^=u>>15;
    u=u*pace.x+uint4(i);
    short2 h=short2(v.xy&255);
    h+=short2(1,2);
    bool4 b=(v+1)>w;
    int k=v.x*3+(w.y-1);
    v=select(v,w-v,b);
    device const int4*p=x+i*1;
    for(int j=0;j<4;j++)w[j]+=v[j]*2;
    int4 q=v*(*p);  // here
    y[i]=twice(q)+r.a[0]+r.a[1]+int4(u&1u)+int4(r.n.xyxy)+int4(h.x)+k;
}
